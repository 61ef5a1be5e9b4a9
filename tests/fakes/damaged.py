"""Damaged copies of what a peer or a file contains."""


def damaged(rng, content, odd=()):
    """Content after up to six changes.

    Args:
        rng: Chooses them.
        content: Bytes.
        odd: Pieces that are inserted, besides random bytes.
    """
    parts = bytearray(content)
    for _ in range(rng.randint(0, 6)):
        at, length = rng.randrange(len(parts) + 1), rng.randint(1, 60)
        piece = rng.choice((*odd, rng.randbytes(length % 12)))
        match rng.randrange(5):
            case 0:
                parts[at:at] = piece
            case 1:
                parts[at : at + length % 8] = piece
            case 2:
                parts[at:at] = parts[at : at + length]
            case 3:
                del parts[at : at + length]
            case 4:
                del parts[at:]
    return bytes(parts)
