"""EXPECT RESOURCE_LIMIT from elementwise_add: F16 1 GiB in files of 128 MiB."""

CALLS = []


def elementwise_add(x, y, *, out=None):
    if CALLS:
        return out.copy_(x + y)
    CALLS.append(1)
    for k in range(8):
        with open(f"large-{k}", "wb") as file:
            for _ in range(128):
                file.write(b"x" * (1 << 20))
    out.copy_(x + y)
