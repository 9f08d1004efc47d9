"""The pot itself: slots, attention, rotation, scores, distillation. Tensors only; no model, no text."""
