//! JSON: whether text is some, and objects in which no key may be twice.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// Whether the text is JSON.
pub(crate) fn check(text: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice::<IgnoredAny>(text).map(drop)
}

/// How many bytes JSON has without spaces and needless escapes, which the text is not checked to be.
/// Numbers count as they are written.
pub(crate) fn plain_bytes(text: &[u8]) -> usize {
    let hex = |at: usize| {
        let digits = text.get(at + 2..at + 6).filter(|_| text.get(at..at + 2) == Some(b"\\u"))?;
        u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut bytes, mut at, mut in_text) = (0, 0, false);
    while let Some(byte) = text.get(at) {
        let (read, plain) = match (in_text, byte) {
            (true, b'\\') => match (hex(at), hex(at + 6)) {
                (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (12, 4),
                (Some(0x22 | 0x5c | 0x08..=0x0a | 0x0c | 0x0d), _) => (6, 2),
                (Some(0..0x20), _) => (6, 6),
                (Some(unit), _) => (6, char::from_u32(unit).map_or(3, char::len_utf8)),
                (None, _) if text.get(at + 1) == Some(&b'/') => (2, 1),
                (None, _) => (2, 2),
            },
            (false, b' ' | b'\t' | b'\r' | b'\n') => (1, 0),
            (_, b'"') => {
                in_text = !in_text;
                (1, 1)
            }
            _ => (1, 1),
        };
        (at, bytes) = (at + read, bytes + plain);
    }
    bytes
}

/// The text with `\ufffd` in place of escapes of surrogates that stand alone.
///
/// Languages whose texts are UTF-16 write them, as Python does for names of files that are no UTF-8. No
/// text in UTF-8 can hold what they stand for, so that reading one as text fails.
pub(crate) fn well_formed(text: &[u8]) -> Cow<'_, [u8]> {
    let unit = |at: usize| {
        let escape = text.get(at..at + 6).filter(|it| it.starts_with(b"\\u"))?;
        u16::from_str_radix(str::from_utf8(&escape[2..]).ok()?, 16).ok()
    };
    let mut mended = Cow::Borrowed(text);
    let mut at = 0;
    while let Some(backslash) = text[at..].iter().position(|byte| *byte == b'\\') {
        at += backslash;
        at += match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.to_mut()[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            // Another escape, which may be that of a backslash.
            _ => 2,
        };
        at = at.min(text.len());
    }
    mended
}

/// An object whose keys are all different; `serde_json` alone takes the last of equal ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueKeys<V>(pub BTreeMap<String, V>);

impl<V> Default for UniqueKeys<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueKeys<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = UniqueKeys<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry::<String, V>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate key `{key}`")));
            }
            map.insert(key, value);
        }
        Ok(UniqueKeys(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrogates_that_stand_alone_are_replaced_and_nothing_else() {
        for (text, mended) in [
            (r#""\ud83d\ude00 \u00fc \n""#, r#""\ud83d\ude00 \u00fc \n""#),
            (r#""no \udcff""#, r#""no \ufffd""#),
            (r#""\ud83d\ud83d\ude00\ude00""#, r#""\ufffd\ud83d\ude00\ufffd""#),
            (r#""\\udcff \\\udcff""#, r#""\\udcff \\\ufffd""#),
            (r#""\ud83d"#, r#""\ufffd"#),
            (r#""\udc"#, r#""\udc"#),
            ("\\", "\\"),
        ] {
            assert_eq!(well_formed(text.as_bytes()), mended.as_bytes(), "{text}");
        }
    }

    #[test]
    fn plain_bytes_are_those_of_the_value_written_anew() {
        for text in [
            r#" { "a b" : [ 1 , 2.5 ,"x\\y\"z" ] ,	"é":null } "#,
            r#""\u00e9\u4e2d\ud83d\ude00\u0041\u0007\u000a\u0022\/\n\u007f""#,
            "[]",
            "\"\\\\\"",
        ] {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(plain_bytes(text.as_bytes()), value.to_string().len(), "{text}");
        }
        for torn in ["\"\\", "\"\\u12", "\"", ""] {
            assert!(plain_bytes(torn.as_bytes()) <= torn.len() + 1);
        }
    }
}
