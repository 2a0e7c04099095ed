//! Values that are drawn for each request.
//!
//! Derivation, for whoever wants to recompute them:
//!
//! * key = SHA-256(seed as 8 bytes, little-endian, followed by `LABEL/fields/NAME` in UTF-8)
//! * x_0, x_1, ... = the keystream of ChaCha with 8 rounds under that key, the request's number as
//!   64-bit nonce and a 64-bit block counter from zero, read as little-endian `u64`
//! * one of n: the next x for which x * n mod 2^64 >= 2^64 mod n, and of it floor(x * n / 2^64)
//!   (Lemire's way, which favours none of the n)
//! * `integer`: min + one of max - min + 1; `choice`: the value at one of their count; `text`: for
//!   each character one of 62, from `A-Z`, `a-z`, `0-9`; `uuid`: x_0 and x_1 as 16 bytes, each
//!   little-endian, with the bits of version 4 and variant 1 (RFC 9562, 5.4) put over them
//! * `column`: the value with the request's number; nothing is drawn
//!
//! A field has a key of its own, so that its values do not depend on which others there are.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

use super::encode::{push_hex, push_number};
use crate::config::{Column, Field};

/// Names that are filled in without a field.
pub(super) const BUILT_IN: [&str; 2] = ["invocation", "number"];
/// The longest drawn text: more is the business of `random_bytes`.
const MAX_TEXT: u64 = 1 << 20;
const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const UUID_BYTES: usize = 36;
/// Bytes of a UUID before which there is a hyphen.
const UUID_HYPHENS: [usize; 4] = [4, 6, 8, 10];
/// Sign and digits of an `i64`.
const INTEGER_BYTES: usize = 20;

/// A stream of random numbers of its own within a stream of requests.
pub(crate) fn random(seed: u64, label: &str) -> ChaCha8Rng {
    let key = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(label).finalize();
    ChaCha8Rng::from_seed(key.into())
}

/// What may stand between braces.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

enum Kind {
    Integer { min: i64, count: u128 },
    Choice(Vec<String>),
    Text(usize),
    Uuid,
    Column(Column),
}

/// A field, checked.
pub(super) struct Drawable {
    pub name: String,
    random: ChaCha8Rng,
    kind: Kind,
}

impl Drawable {
    /// A field of the stream of requests with this label; the error says what is wrong.
    pub(super) fn new(seed: u64, label: &str, name: &str, field: &Field) -> Result<Self, String> {
        if !is_name(name) {
            return Err("a name has letters, digits, _ and -, and begins with a letter or _".into());
        }
        if BUILT_IN.contains(&name) {
            return Err("the name is built in: choose another".into());
        }
        let kind = match field {
            Field::Integer { min, max } if min > max => {
                return Err(format!("min is {min}, which is more than max, {max}"));
            }
            Field::Integer { min, max } => Kind::Integer {
                min: *min,
                // At most 2^64.
                count: (i128::from(*max) - i128::from(*min) + 1).unsigned_abs(),
            },
            Field::Choice { values } if values.is_empty() => {
                return Err("there are no values to choose from".into());
            }
            Field::Choice { values } => {
                Kind::Choice(values.iter().map(ToString::to_string).collect())
            }
            Field::Text { length: length @ 1..=MAX_TEXT } => Kind::Text(*length as usize),
            Field::Text { length } => {
                return Err(format!("length is {length}: it must be 1 to {MAX_TEXT}"));
            }
            Field::Uuid {} => Kind::Uuid,
            Field::Column { values } => Kind::Column(values.clone()),
        };
        let random = random(seed, &format!("{label}/fields/{name}"));
        Ok(Self { name: name.to_owned(), random, kind })
    }

    /// The most bytes of a value.
    pub(super) fn max_length(&self) -> usize {
        match &self.kind {
            Kind::Integer { .. } => INTEGER_BYTES,
            Kind::Choice(values) => values.iter().map(String::len).max().unwrap_or_default(),
            Kind::Text(length) => *length,
            Kind::Uuid => UUID_BYTES,
            Kind::Column(values) => values.iter().map(str::len).max().unwrap_or_default(),
        }
    }

    /// The first of the values that a person gave for which this holds.
    pub(super) fn find_given(&self, mut is_wanted: impl FnMut(&str) -> bool) -> Option<&str> {
        match &self.kind {
            Kind::Choice(values) => values.iter().map(String::as_str).find(|v| is_wanted(v)),
            Kind::Column(values) => values.iter().find(|value| is_wanted(value)),
            Kind::Integer { .. } | Kind::Text(_) | Kind::Uuid => None,
        }
    }

    /// Appends the value for the request with this number.
    pub(super) fn draw(&self, number: u64, out: &mut Vec<u8>) {
        let mut random = self.random.clone();
        random.set_stream(number);
        match &self.kind {
            Kind::Integer { min, count } => {
                let value = integer(&mut random, *min, *count);
                if value < 0 {
                    out.push(b'-');
                }
                push_number(out, value.unsigned_abs());
            }
            Kind::Choice(values) => {
                let index = one_of(&mut random, values.len() as u128) as usize;
                out.extend_from_slice(values[index].as_bytes());
            }
            Kind::Text(length) => {
                let count = ALPHABET.len() as u128;
                out.extend((0..*length).map(|_| ALPHABET[one_of(&mut random, count) as usize]));
            }
            Kind::Uuid => push_uuid(&mut random, out),
            Kind::Column(values) => {
                // There is one for each request: `plan::check::columns`.
                let value = usize::try_from(number).ok().and_then(|number| values.get(number));
                out.extend_from_slice(value.unwrap_or_default().as_bytes());
            }
        }
    }
}

/// One of `count` integers from `min` on.
fn integer(random: &mut impl Rng, min: i64, count: u128) -> i64 {
    min.wrapping_add_unsigned(one_of(random, count))
}

/// The integer with this number, from `min` to `max`, as of a field.
pub(crate) fn draw_integer(random: &ChaCha8Rng, number: u64, min: i64, max: i64) -> i64 {
    let mut random = random.clone();
    random.set_stream(number);
    integer(&mut random, min, (i128::from(max) - i128::from(min) + 1).unsigned_abs())
}

/// A number below `count`, which is 1 to 2^64.
fn one_of(random: &mut impl Rng, count: u128) -> u64 {
    let skipped = ((1 << u64::BITS) % count) as u64;
    loop {
        let product = u128::from(random.next_u64()) * count;
        if product as u64 >= skipped {
            return (product >> u64::BITS) as u64;
        }
    }
}

fn push_uuid(random: &mut impl Rng, out: &mut Vec<u8>) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    bytes[8..].copy_from_slice(&random.next_u64().to_le_bytes());
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    for (index, byte) in bytes.iter().enumerate() {
        if UUID_HYPHENS.contains(&index) {
            out.push(b'-');
        }
        push_hex(out, &[*byte]);
    }
}

/// The values of one request, by the index of the field.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    text: Vec<u8>,
    spans: Vec<(usize, usize)>,
}

impl Drawn {
    /// Draws the fields with the indices `used`, each once.
    pub(super) fn fill(&mut self, fields: &[Drawable], used: &[usize], number: u64) {
        self.text.clear();
        self.spans.clear();
        if used.is_empty() {
            return;
        }
        self.spans.resize(fields.len(), (0, 0));
        for &index in used {
            let start = self.text.len();
            fields[index].draw(number, &mut self.text);
            self.spans[index] = (start, self.text.len());
        }
    }

    pub(super) fn value(&self, index: usize) -> &[u8] {
        let (start, end) = self.spans[index];
        &self.text[start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(json: serde_json::Value) -> Result<Drawable, String> {
        Drawable::new(7, "hello", "x", &serde_json::from_value(json).unwrap())
    }

    fn value(field: &Drawable, number: u64) -> String {
        let mut out = Vec::new();
        field.draw(number, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn integer(min: i64, max: i64) -> Drawable {
        field(serde_json::json!({"kind": "integer", "min": min, "max": max})).unwrap()
    }

    #[test]
    fn bad_fields_are_refused_with_a_sentence() {
        for (json, expected) in [
            (serde_json::json!({"kind": "integer", "min": 2, "max": 1}), "more than max"),
            (serde_json::json!({"kind": "choice", "values": []}), "no values"),
            (serde_json::json!({"kind": "text", "length": 0}), "must be 1 to"),
            (serde_json::json!({"kind": "text", "length": 2_000_000}), "must be 1 to"),
        ] {
            let message = field(json).err().unwrap();
            assert!(message.contains(expected), "{message}");
        }
        for name in ["", "1a", "a b", "é", "number", "invocation"] {
            assert!(Drawable::new(0, "", name, &Field::Uuid {}).is_err(), "{name:?}");
        }
    }

    #[test]
    fn every_value_has_the_same_chance() {
        const DRAWS: u64 = 60_000;
        let die = integer(1, 6);
        let mut counts = [0f64; 6];
        for number in 0..DRAWS {
            counts[value(&die, number).parse::<usize>().unwrap() - 1] += 1.0;
        }
        let expected = DRAWS as f64 / 6.0;
        let chi2: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
        // The 99.9% point with 5 degrees of freedom.
        assert!(chi2 < 20.5, "{counts:?}");
    }

    /// Computed by an independent implementation of the derivation above.
    #[test]
    fn known_answers() {
        let fields = [
            ("i", serde_json::json!({"kind": "integer", "min": -5, "max": 100})),
            ("c", serde_json::json!({"kind": "choice", "values": ["a", "b", "c"]})),
            ("t", serde_json::json!({"kind": "text", "length": 12})),
            ("u", serde_json::json!({"kind": "uuid"})),
        ];
        let expected = [
            (0, ["64", "b", "FRyBtRgdCs7J", "54b65f08-4a65-4f3f-a8ec-a1b4c4298b2c"]),
            (1, ["40", "c", "g4hNrKMMUFFX", "8a4e2c64-f327-4705-9620-7139edf55269"]),
            (14, ["69", "a", "VzMRCBQnfvD6", "03f28302-b39e-4f6b-bb70-49a00a423bb7"]),
            (u64::MAX, ["16", "c", "7Q9XTjMwuoNf", "8fbd36e4-5189-4b14-9974-9f2c918c3b0c"]),
        ];
        for (number, values) in expected {
            for ((name, json), expected) in fields.iter().zip(values) {
                let field = serde_json::from_value(json.clone()).unwrap();
                let field = Drawable::new(7, "hello", name, &field).unwrap();
                assert_eq!(value(&field, number), expected, "{name} of {number}");
            }
        }
    }

    #[test]
    fn a_field_does_not_depend_on_the_others() {
        let uuid = Drawable::new(7, "f", "b", &Field::Uuid {}).unwrap();
        let text = Drawable::new(7, "f", "a", &Field::Text { length: 9 }).unwrap();
        let (mut alone, mut both) = (Drawn::default(), Drawn::default());
        let expected = value(&uuid, 5);
        alone.fill(std::slice::from_ref(&uuid), &[0], 5);
        both.fill(&[text, uuid], &[0, 1], 5);
        assert_eq!(alone.value(0), expected.as_bytes());
        assert_eq!(both.value(1), expected.as_bytes());
    }

    proptest! {
        #[test]
        fn integers_are_in_range_and_repeatable(a: i64, b: i64, number: u64) {
            let (min, max) = (a.min(b), a.max(b));
            let field = integer(min, max);
            let drawn: i64 = value(&field, number).parse().unwrap();
            prop_assert!((min..=max).contains(&drawn));
            prop_assert_eq!(value(&integer(min, max), number), value(&field, number));
        }

        #[test]
        fn texts_have_their_length_and_uuids_their_shape(length in 1u64..200, number: u64) {
            let text = field(serde_json::json!({"kind": "text", "length": length})).unwrap();
            let drawn = value(&text, number);
            prop_assert_eq!(drawn.len() as u64, length);
            prop_assert!(drawn.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            let uuid = value(&field(serde_json::json!({"kind": "uuid"})).unwrap(), number);
            prop_assert_eq!(uuid.len(), UUID_BYTES);
            let parts: Vec<_> = uuid.split('-').collect();
            prop_assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
            prop_assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']));
        }
    }
}
