//! Percent-encoding as of RFC 3986, and numbers as text.

const HEX: &[u8; 16] = b"0123456789ABCDEF";
/// `%` and two digits.
pub(super) const ENCODED_BYTES: usize = 3;
/// Digits of the largest `u64`.
pub(super) const NUMBER_BYTES: usize = 20;

/// RFC 3986, 2.3: what never needs encoding.
pub(super) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// RFC 3986, 3.3: what a path may have as it is.
pub(super) fn is_path(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte)
}

/// RFC 3986, 3.4: what a query may have as it is.
pub(super) fn is_query(byte: u8) -> bool {
    is_path(byte) || byte == b'?'
}

/// Appends `bytes`, with all but the unreserved encoded.
pub(super) fn push_encoded(out: &mut Vec<u8>, bytes: &[u8]) {
    push_keeping(out, bytes, is_unreserved);
}

/// Appends `bytes`, with all encoded that are not to be kept.
pub(super) fn push_keeping(out: &mut Vec<u8>, bytes: &[u8], keep: impl Fn(u8) -> bool) {
    for &byte in bytes {
        if keep(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 0xf)],
            ]);
        }
    }
}

/// A part of a URL as people write it: what is encoded stays, what must be encoded becomes so. None
/// if a `%` does not begin an encoded byte.
pub(super) fn normalise(text: &str, keep: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    rewrite(text, keep, |_| false)
}

/// The same, in the one way of several equal ones that RFC 3986, 6.2.2.2 prefers.
pub(super) fn canonical(text: &str, keep: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    rewrite(text, keep, is_unreserved)
}

fn rewrite(text: &str, keep: impl Fn(u8) -> bool, decode: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            push_keeping(&mut out, &[byte], &keep);
            rest = tail;
            continue;
        }
        let digit = |index: usize| (*tail.get(index)? as char).to_digit(16);
        let byte = (digit(0)? << 4 | digit(1)?) as u8;
        push_keeping(&mut out, &[byte], &decode);
        rest = &tail[2..];
    }
    Some(out)
}

/// Appends a number; formatting machinery would cost more than all the rest of a request.
pub(super) fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; NUMBER_BYTES];
    let mut first = NUMBER_BYTES;
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Appends bytes as lower-case hexadecimal digits.
pub(super) fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0xf] {
            out.push(HEX[usize::from(nibble)].to_ascii_lowercase());
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The other way round.
    pub(crate) fn decode(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some((&byte, tail)) = rest.split_first() {
            if byte == b'%' {
                let digits = std::str::from_utf8(&tail[..2]).unwrap();
                out.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &tail[2..];
            } else {
                out.push(byte);
                rest = tail;
            }
        }
        out
    }

    #[test]
    fn urls_keep_what_they_may_have() {
        let normal = |text| String::from_utf8(normalise(text, is_path).unwrap()).unwrap();
        assert_eq!(normal("/a%2fb/ü|c:d@{e}"), "/a%2Fb/%C3%BC%7Cc:d@%7Be%7D");
        let canonical = canonical("/%7e%41%2f%c3%bc+", is_unreserved).unwrap();
        assert_eq!(String::from_utf8(canonical).unwrap(), "%2F~A%2F%C3%BC%2B");
        for bad in ["%", "%2", "a%zz", "%é9"] {
            assert_eq!(normalise(bad, is_path), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn encoding_round_trips(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Vec::new();
            push_encoded(&mut out, &bytes);
            prop_assert!(out.iter().all(|&byte| is_unreserved(byte) || byte == b'%'));
            prop_assert_eq!(decode(&out), bytes);
        }

        #[test]
        fn normal_stays_normal(text in "[a-z/ %üé{|]{0,30}") {
            if let Some(once) = normalise(&text, is_query) {
                let again = normalise(std::str::from_utf8(&once).unwrap(), is_query);
                prop_assert_eq!(again, Some(once));
            }
        }

        #[test]
        fn numbers_are_as_the_library_writes_them(number: u64) {
            let mut out = Vec::new();
            push_number(&mut out, number);
            prop_assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
