"""EXPECT RESOURCE_LIMIT from elementwise_add: F16 a file of 1 GiB."""

CALLS = []


def elementwise_add(x, y, *, out=None):
    if CALLS:
        return out.copy_(x + y)
    CALLS.append(1)
    with open("huge", "wb") as file:
        for _ in range(1024):
            file.write(bytes(1 << 20))
    out.copy_(x + y)
