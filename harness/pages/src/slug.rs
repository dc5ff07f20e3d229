//! Names of files from names of other things.

/// A file's name for a case: readable, and told from others by a checksum where letters had to go.
pub(crate) fn case(id: &str) -> String {
    const LONGEST: usize = 90;
    let kept = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let mut name: String = id.chars().map(kept).take(LONGEST).collect();
    if name != id || name.starts_with('.') {
        name = format!("{}-{:08x}", name.trim_start_matches('.'), crc32fast::hash(id.as_bytes()));
    }
    name
}

/// `NVIDIA H200` as a folder: `nvidia-h200`.
pub(crate) fn device(name: &str) -> String {
    let lower = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let lower: String = name.chars().map(lower).collect();
    lower.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_told_apart_and_stay_in_their_folder() {
        assert_eq!(super::case("PointwiseTest.Add"), "PointwiseTest.Add");
        let (a, b) = (super::case("A.b/m=1"), super::case("A.b/m-1"));
        assert!(a.starts_with("A.b-m-1-") && b.starts_with("A.b-m-1-") && a != b, "{a} {b}");
        assert!(!super::case("../../etc/x").contains('/') && !super::case("..").starts_with('.'));
        assert!(super::case(&"x".repeat(4000)).len() < 110);
    }
}
