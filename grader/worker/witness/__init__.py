"""What Triton's interpreter sees of a call: addresses outside of tensors, races between programs."""
