//! AWS Signature Version 4: the key of a day, and the authorization of a canonical request. What a
//! canonical request is made of, its sender knows best; of one that was received, [`verify`](Claim::verify) makes it
//! anew.
//!
//! Source: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>

mod authorization;
mod canonical;
mod verify;

use std::fmt::Write;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

pub use authorization::without_signature;
pub use verify::{Claim, Received, Refusal};

/// What begins an authorization, and the text that is signed.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const END_OF_SCOPE: &str = "aws4_request";
/// The characters of a date that say the day: of `20260501T120000Z`, `20260501`.
const DAY_CHARS: usize = 8;

/// The key that signs what one client sends to one service of a region on one day.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

/// Who signs, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The public part of the credentials.
    pub access_key_id: &'a str,
    /// Such as `us-east-1`.
    pub region: &'a str,
    /// Such as `lambda`.
    pub service: &'a str,
}

/// SHA-256 in hexadecimal digits.
#[must_use]
pub fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

impl Scope<'_> {
    /// The key of the day that `date` (`20260501T120000Z`) is on.
    #[must_use]
    pub fn key(&self, secret: &str, date: &str) -> Key {
        let mut key = format!("AWS4{secret}").into_bytes();
        for step in [&date[..DAY_CHARS], self.region, self.service, END_OF_SCOPE] {
            key = hmac(&key).chain_update(step).finalize().into_bytes().to_vec();
        }
        Key(hmac(&key))
    }

    /// The header `authorization` of a request. `headers` are the names of those that are signed, joined
    /// by semicolons.
    #[must_use]
    pub fn authorization(&self, key: Key, date: &str, headers: &str, canonical: &[u8]) -> String {
        let Self { access_key_id, region, service } = self;
        let scope = format!("{}/{region}/{service}/{END_OF_SCOPE}", &date[..DAY_CHARS]);
        let to_sign = format!("{ALGORITHM}\n{date}\n{scope}\n{}", hash(canonical));
        let signature = hex(&key.0.chain_update(to_sign).finalize().into_bytes());
        format!(
            "{ALGORITHM} Credential={access_key_id}/{scope}, SignedHeaders={headers}, \
             Signature={signature}"
        )
    }
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example `get-vanilla` of AWS's test suite for this version of signatures.
    #[test]
    fn a_request_of_awss_test_suite_is_signed_as_there() {
        let scope = Scope { access_key_id: "AKIDEXAMPLE", region: "us-east-1", service: "service" };
        let date = "20150830T123600Z";
        let canonical = format!(
            "GET\n/\n\nhost:example.amazonaws.com\nx-amz-date:{date}\n\nhost;x-amz-date\n{}",
            hash(b"")
        );
        let key = scope.key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", date);
        assert_eq!(
            scope.authorization(key, date, "host;x-amz-date", canonical.as_bytes()),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, \
             Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
    }
}
