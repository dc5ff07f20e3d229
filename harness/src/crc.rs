//! CRC-32 (IEEE 802.3, reflected polynomial 0xEDB88320) of frames and records.

/// A static, since code that is not optimised copies a constant for each index.
/// `TABLES[k][b]` is what byte `b` does to the checksum `k` bytes later.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0xEDB8_8320 } else { value >> 1 };
            bit += 1;
        }
        tables[0][i] = value;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[k - 1][i];
            tables[k][i] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
            i += 1;
        }
        k += 1;
    }
    tables
}

/// A running checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc32(u32);

impl Crc32 {
    pub(crate) fn new() -> Self {
        Self(!0)
    }
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        // Eight bytes at a time: outputs of cases are large.
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let word = u64::from_le_bytes(*word) ^ u64::from(self.0);
            self.0 = (0..8).fold(0, |crc, k| crc ^ TABLES[7 - k][(word >> (8 * k) & 0xFF) as usize]);
        }
        for byte in rest {
            self.0 = (self.0 >> 8) ^ TABLES[0][((self.0 ^ u32::from(*byte)) & 0xFF) as usize];
        }
    }
    pub(crate) fn finish(self) -> u32 {
        !self.0
    }
}

/// The checksum of one piece.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(bytes);
    crc.finish()
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_answer() {
        assert_eq!(super::crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(super::crc32(b"The quick brown fox jumps over the lazy dog"), 0x414F_A339);
    }

    #[test]
    fn pieces_make_the_whole() {
        let bytes: Vec<u8> = (0..100u8).map(|i| i.wrapping_mul(37)).collect();
        for split in 0..bytes.len() {
            let mut crc = super::Crc32::new();
            crc.update(&bytes[..split]);
            crc.update(&bytes[split..]);
            assert_eq!(crc.finish(), super::crc32(&bytes), "{split}");
        }
    }
}
