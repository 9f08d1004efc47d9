"""Where the device has them: captured graphs, our Triton kernels, compiled twins of tensor functions."""
