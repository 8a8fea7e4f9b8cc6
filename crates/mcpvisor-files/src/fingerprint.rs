//! SHA-256 fingerprints.

use sha2::{Digest, Sha256};

/// The SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The SHA-256 of some bytes, in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The SHA-256 of some parts, as `sha256:` and 64 digits. Each part is hashed with its length, so
/// that different parts never give the same input.
pub fn of_parts<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    tagged(&hash.finalize())
}

/// The SHA-256 of a text, as `sha256:` and 64 digits.
pub fn of_text(text: &str) -> String {
    tagged(&Sha256::digest(text.as_bytes()))
}

fn tagged(digest: &[u8]) -> String {
    format!("sha256:{}", hex(digest))
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let digits = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16));
    digits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_depends_on_where_a_part_ends() {
        let of = |parts: &[&str]| of_parts(parts.iter().map(|part| part.as_bytes()));
        let one = of(&["stdio", "npx", "-y", "server"]);
        assert_eq!(one, of(&["stdio", "npx", "-y", "server"]));
        assert_ne!(one, of(&["stdio", "npx", "-yserver"]));
        assert_ne!(one, of(&["stdio", "npx", "server", "-y"]));
    }
}
