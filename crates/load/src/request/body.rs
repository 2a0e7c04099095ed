//! What requests carry.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rand_chacha::rand_core::Rng;

use super::fields::{Drawable, random};
use super::template::{self, Answers, Encoding, Part, Pieces};
use crate::config::{Body, Stream};
use crate::error::LoadError;

/// The longest body.
const MAX_BYTES: u64 = 1 << 30;

/// A body, the same for all or with the values of the request.
#[derive(Clone)]
pub(super) enum Content {
    Constant(Bytes),
    Template(Pieces),
}

impl Content {
    /// The body of a stream; random bytes are of the stream with this label.
    pub(super) fn of(
        stream: &Stream,
        seed: u64,
        label: &str,
        fields: &[Drawable],
        answers: &mut Answers,
    ) -> Result<Self, LoadError> {
        let content = match &stream.body {
            None => Self::Constant(Bytes::new()),
            Some(Body::Text(text)) => Self::Constant(text.clone().into()),
            Some(Body::Base64(text)) => {
                let bytes = STANDARD.decode(text);
                Self::Constant(Bytes::from(bytes.map_err(|source| LoadError::Base64 {
                    stream: stream.function.clone(),
                    source,
                })?))
            }
            Some(Body::RandomBytes(bytes)) => {
                check_size(stream, *bytes)?;
                Self::Constant(random_bytes(seed, label, *bytes as usize))
            }
            Some(Body::Template(text)) => Self::template(stream, text, fields, answers)?,
        };
        check_size(stream, content.max_length(fields) as u64)?;
        Ok(content)
    }

    fn template(
        stream: &Stream,
        text: &str,
        fields: &[Drawable],
        answers: &mut Answers,
    ) -> Result<Self, LoadError> {
        let parts = template::parse_with(text, fields, Encoding::AsIs, Some(answers)).map_err(
            |reason| LoadError::Template {
                stream: stream.function.clone(),
                place: "the body".to_owned(),
                reason,
            },
        )?;
        let mut pieces = Pieces::default();
        for part in &parts {
            match part {
                Part::Text(text) => pieces.push_bytes(text.as_bytes()),
                Part::Value(source) => pieces.push_value(*source, Encoding::AsIs),
            }
        }
        Ok(match pieces.constant() {
            Some(bytes) => Self::Constant(Bytes::copy_from_slice(bytes)),
            None => Self::Template(pieces),
        })
    }

    fn max_length(&self, fields: &[Drawable]) -> usize {
        match self {
            Self::Constant(bytes) => bytes.len(),
            Self::Template(pieces) => pieces.max_length(fields),
        }
    }

    pub(super) fn constant(&self) -> Option<&Bytes> {
        match self {
            Self::Constant(bytes) => Some(bytes),
            Self::Template(_) => None,
        }
    }
}

fn check_size(stream: &Stream, bytes: u64) -> Result<(), LoadError> {
    if bytes > MAX_BYTES {
        let stream = stream.function.clone();
        return Err(LoadError::BodySize { stream, bytes, limit: MAX_BYTES });
    }
    Ok(())
}

/// The first bytes of the keystream of ChaCha with 8 rounds; the key is SHA-256(seed as 8 bytes,
/// little-endian, followed by `LABEL/body` in UTF-8), nonce and counter begin at zero.
fn random_bytes(seed: u64, label: &str, length: usize) -> Bytes {
    let mut bytes = vec![0; length];
    random(seed, &format!("{label}/body")).fill_bytes(&mut bytes);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// Computed by an independent implementation of the derivation.
    #[test]
    fn random_bytes_have_known_answers() {
        let bytes = random_bytes(7, "hello", 1_000);
        assert_eq!(hex::encode(&bytes[..16]), "c6cbfc16f38cef9077a344c10d35f5b7");
        assert_eq!(
            hex::encode(Sha256::digest(&bytes)),
            "ffa3baef765996aeab89a1addbf09de4b552904450ff52cefd41828cb6061149"
        );
        assert_eq!(random_bytes(7, "hello", 33), bytes[..33]);
    }
}
