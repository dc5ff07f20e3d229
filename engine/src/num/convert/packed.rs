//! Two `f4e2m1fn` in a byte, the first in the low half.

/// Packs codes of one per byte; `None` if their number is odd. High halves are ignored.
pub fn pack_f4e2m1fn(codes: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = codes.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[low, high]| low & 0xf | high << 4).collect())
}

/// Unpacks to codes of one per byte.
pub fn unpack_f4e2m1fn(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| [byte & 0xf, byte >> 4]).collect()
}
