"""What this process holds of a card, and the limit above which torch is refused more."""

import gc

import torch

from infinipot.core.cuda.capturing import apart_from_capture, unless_capturing


class CardMemory:
    """The memory of one CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._beside = 0
        self.total = int(torch.cuda.mem_get_info(device)[1])

    def held(self) -> int:
        """Bytes that torch has taken: what is in use, and what is kept for the next computation."""
        return torch.cuda.memory_reserved(self._device)

    def peak(self) -> int:
        """Most bytes that torch had taken since `forget_peak`."""
        return torch.cuda.max_memory_reserved(self._device)

    def forget_peak(self) -> None:
        """Give back what is not in use, and begin anew with `peak`."""
        self.release()
        torch.cuda.reset_peak_memory_stats(self._device)

    def beside(self) -> int:
        """Bytes beside torch's: the driver's own, kernels, graphs, and other processes' on the same card."""
        with unless_capturing() as free:  # else as it was last seen
            if free:
                left, total = torch.cuda.mem_get_info(self._device)
                self._beside = max(0, total - left - self.held())
        return self._beside

    def limit(self, most: int) -> None:
        """Let torch take so many bytes and no more: an allocation above is refused, and raises."""
        torch.cuda.set_per_process_memory_fraction(min(1.0, most / self.total), self._device)

    def release(self) -> None:
        """Give back to the card what torch keeps and nothing uses."""
        gc.collect()
        with apart_from_capture():
            torch.cuda.empty_cache()
