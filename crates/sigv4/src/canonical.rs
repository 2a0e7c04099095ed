//! Paths and queries in the form in which they are signed.

/// A path without empty parts and those that lead to itself or above.
pub(crate) fn normal_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let end = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

/// The first parts of a path, which say whom a request is for, and which no others may take the place of.
const FIXED_PARTS: usize = 2;

/// Whether a path means another addressee once it is [normal](normal_path): then who signed the normal one
/// has not signed this.
pub(crate) fn leads_elsewhere(path: &str) -> bool {
    let mut depth = 0_usize;
    for (index, part) in path.split('/').skip(1).enumerate() {
        match part {
            "" | "." if index < FIXED_PARTS => return path != "/",
            "" | "." => {}
            ".." if depth <= FIXED_PARTS => return true,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

/// A query's parameters in order; `encoded_anew`: decoded and encoded as AWS does it.
pub(crate) fn canonical_query(query: &str, encoded_anew: bool) -> String {
    let part = |text: &str| {
        if encoded_anew { encode_bytes(&decode(text), false) } else { text.to_owned() }
    };
    let mut pairs: Vec<(String, String)> = (query.split('&'))
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (part(name), part(value)))
        .collect();
    pairs.sort();
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

pub(crate) fn encode(text: &str, keep_slashes: bool) -> String {
    encode_bytes(text.as_bytes(), keep_slashes)
}

fn encode_bytes(bytes: &[u8], keep_slashes: bool) -> String {
    let mut encoded = String::with_capacity(bytes.len());
    for byte in bytes {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
        if plain || keep_slashes && *byte == b'/' {
            encoded.push(char::from(*byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Percent-decodes; what is not valid stays as it is.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let digits = bytes.get(index + 1..index + 3).filter(|_| bytes[index] == b'%');
        match digits.and_then(|digits| unhex(std::str::from_utf8(digits).ok()?)) {
            Some(byte) => {
                decoded.extend(byte);
                index += 3;
            }
            None => {
                decoded.push(bytes[index]);
                index += 1;
            }
        }
    }
    decoded
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|it| it.to_digit(16).map(|it| it as u8)).collect::<Option<_>>()?;
    digits
        .len()
        .is_multiple_of(2)
        .then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_plain() {
        for (path, plain) in [("/", "/"), ("//a/./b/../c/", "/a/c/"), ("/../x", "/x"), ("", "/")] {
            assert_eq!(normal_path(path), plain);
        }
    }

    #[test]
    fn queries_are_in_order_and_encoded() {
        assert_eq!(canonical_query("b=%2f&a=x+y&c", true), "a=x%2By&b=%2F&c=");
        assert_eq!(canonical_query("b=%2f&a=x+y&c", false), "a=x+y&b=%2f&c=");
    }

    #[test]
    fn what_is_not_encoded_stays() {
        assert_eq!(decode("%2F%zz%4"), b"/%zz%4");
        assert_eq!(unhex("00ff"), Some(vec![0, 255]));
        assert_eq!((unhex("0"), unhex("zz")), (None, None));
    }
}
