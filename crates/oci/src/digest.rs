//! SHA-256 digests, and readers that check them.

use std::fmt;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ImageError;

const PREFIX: &str = "sha256:";
const HEX_DIGITS: usize = 64;

/// The SHA-256 of something, in hexadecimal digits. The specification allows other algorithms, which
/// hardly anything uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// Reads `sha256:...`.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.strip_prefix(PREFIX) {
            Some(digits) if digits.len() == HEX_DIGITS && digits.bytes().all(is_digit) => {
                Ok(Self(digits.to_owned()))
            }
            _ => Err(ImageError::Digest(text.to_owned())),
        }
    }

    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex::encode(Sha256::digest(bytes)))
    }

    /// The 64 digits, without the algorithm.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = ImageError;

    fn try_from(text: String) -> Result<Self, ImageError> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// Digests what passes through it.
pub struct Digesting<R> {
    inner: R,
    hasher: Sha256,
    bytes: u64,
}

impl<R: Read> Digesting<R> {
    /// A reader that has digested nothing yet.
    pub fn new(inner: R) -> Self {
        Self { inner, hasher: Sha256::new(), bytes: 0 }
    }

    /// Reads what is left; returns the digest of everything and how many bytes it had.
    pub fn finish(mut self) -> io::Result<(Digest, u64)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((Digest(hex::encode(self.hasher.finalize())), self.bytes))
    }
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_strictly() {
        let digest = Digest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(Digest::parse(text).unwrap(), digest);
        let upper = text.to_uppercase().replace("SHA256", "sha256");
        for wrong in ["", "abc", "sha256:", "sha512:00", &text[..70], &upper, "sha256:../../etc"] {
            assert!(Digest::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_rest_counts_too() {
        let mut reader = Digesting::new(&b"abc"[..]);
        reader.read_exact(&mut [0]).unwrap();
        assert_eq!(reader.finish().unwrap(), (Digest::of(b"abc"), 3));
    }
}
