"""The spring pipeline, rewritten for accelerators: brax's equations of motion in few fused kernels."""
