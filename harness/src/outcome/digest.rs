//! Digests of what is too large to be kept.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use xxhash_rust::xxh3::xxh3_128;

/// 128 bits that stand for some bytes: others have the same ones by chance alone, which is never. Written as 32
/// hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(pub u128);

impl Digest {
    /// Of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
    }

    /// Of several things, in their order.
    pub fn of_all(parts: impl IntoIterator<Item = Digest>) -> Self {
        Self::of(&parts.into_iter().flat_map(|part| part.0.to_le_bytes()).collect::<Vec<_>>())
    }

    /// From its digits.
    pub fn read(text: &str) -> Option<Self> {
        let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain.then(|| u128::from_str_radix(text, 16).ok().map(Self))?
    }
}

impl fmt::LowerHex for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{self:032x}"))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no digest")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_tell_bytes_apart_and_travel_as_digits() {
        let [a, b] = [Digest::of(b"a"), Digest::of(b"b")];
        assert!(a != b && Digest::of_all([a, b]) != Digest::of_all([b, a]) && Digest::of_all([a]) != a);
        for digest in [a, b, Digest(7), Digest(u128::MAX)] {
            let text = serde_json::to_string(&digest).expect("writes");
            assert_eq!((text.len(), serde_json::from_str::<Digest>(&text).ok()), (34, Some(digest)), "{text}");
        }
        for other in ["", "7", "+0000000000000000000000000000007", &"0".repeat(33)] {
            assert_eq!(Digest::read(other), None, "{other:?}");
        }
    }
}
