//! Text with `{{name}}` in it.
//!
//! `{{{{` stands for two braces; of three the first is text and the others open. What closes and
//! was not opened is text, for JSON ends that way.

use super::answers::{Ancestor, Reference, is_reference};
use super::encode::{ENCODED_BYTES, NUMBER_BYTES, push_encoded, push_number};
use super::fields::{Drawable, Drawn, is_name};
use super::{Invocation, Moment};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Invocation,
    Number,
    /// Index of the field.
    Field(usize),
    /// Index of the reference to an answer.
    Answer(usize),
}

/// What a template may have of earlier answers, and has.
pub(super) struct Answers<'a> {
    pub ancestors: &'a [Ancestor<'a>],
    pub references: Vec<Reference>,
}

impl Answers<'_> {
    fn add(&mut self, text: &str, encoding: Encoding) -> Result<Source, String> {
        let reference = Reference::parse(text, self.ancestors)?;
        self.references.push(match encoding {
            Encoding::AsIs => reference,
            Encoding::Percent => reference.in_url(),
        });
        Ok(Source::Answer(self.references.len() - 1))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Value(Source),
}

/// Takes a template apart that has no answers in it; the error says what is wrong and names it.
pub(super) fn parse(text: &str, fields: &[Drawable]) -> Result<Vec<Part>, String> {
    parse_with(text, fields, Encoding::AsIs, None)
}

/// Takes a template apart, and adds the answers that it has to those of `answers`. `encoding`: of the
/// place where it stands.
pub(super) fn parse_with(
    text: &str,
    fields: &[Drawable],
    encoding: Encoding,
    mut answers: Option<&mut Answers>,
) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        literal.push_str(&rest[..start]);
        rest = &rest[start + OPEN.len()..];
        if let Some(escaped) = rest.strip_prefix(OPEN) {
            literal.push_str(OPEN);
            rest = escaped;
            continue;
        }
        if let Some(opened) = rest.strip_prefix('{') {
            literal.push('{');
            rest = opened;
        }
        let Some(end) = rest.find(CLOSE) else {
            let shown: String = rest.chars().take(20).collect();
            return Err(format!(
                "nothing closes the braces before {shown:?}: write {{{{name}}}}, or {{{{{{{{ for \
                 two braces"
            ));
        };
        if !literal.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut literal)));
        }
        let name = rest[..end].trim();
        let is_field = fields.iter().any(|field| field.name == name);
        parts.push(Part::Value(match &mut answers {
            Some(answers) if !is_field && is_reference(name) => answers.add(name, encoding)?,
            _ => source(name, fields)?,
        }));
        rest = &rest[end + CLOSE.len()..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(Part::Text(literal));
    }
    Ok(parts)
}

fn source(name: &str, fields: &[Drawable]) -> Result<Source, String> {
    match name {
        "invocation" => return Ok(Source::Invocation),
        "number" => return Ok(Source::Number),
        _ => {}
    }
    if let Some(index) = fields.iter().position(|field| field.name == name) {
        return Ok(Source::Field(index));
    }
    if is_reference(name) {
        return Err(format!(
            "{name:?}: answers can be in bodies, URLs and queries of later stages"
        ));
    }
    if !is_name(name) {
        let shown: String = name.chars().take(20).collect();
        return Err(format!(
            "{shown:?} between braces is not a field's name; write {{{{{{{{ for two braces"
        ));
    }
    let known: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
    Err(format!(
        "there is no field {name:?}; there are invocation, number{}{}",
        if known.is_empty() { "" } else { ", " },
        known.join(", ")
    ))
}

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    AsIs,
    Percent,
}

#[derive(Debug, Clone)]
enum Piece {
    Bytes(Vec<u8>),
    Value(Source, Encoding),
}

/// A template made ready: bytes to copy, and values between.
#[derive(Debug, Clone, Default)]
pub(super) struct Pieces(Vec<Piece>);

/// What values a request has.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub moment: &'a Moment<'a>,
    pub drawn: &'a Drawn,
}

impl Pieces {
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            Some(Piece::Bytes(last)) => last.extend_from_slice(bytes),
            _ if bytes.is_empty() => {}
            _ => self.0.push(Piece::Bytes(bytes.to_vec())),
        }
    }

    pub(super) fn push_value(&mut self, source: Source, encoding: Encoding) {
        self.0.push(Piece::Value(source, encoding));
    }

    pub(super) fn push_all(&mut self, other: &Self) {
        for piece in &other.0 {
            match piece {
                Piece::Bytes(bytes) => self.push_bytes(bytes),
                Piece::Value(source, encoding) => self.push_value(*source, *encoding),
            }
        }
    }

    /// The bytes, if there are no values between.
    pub(super) fn constant(&self) -> Option<&[u8]> {
        match self.0.as_slice() {
            [] => Some(&[]),
            [Piece::Bytes(bytes)] => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = Source> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Bytes(_) => None,
            Piece::Value(source, _) => Some(*source),
        })
    }

    /// The most bytes that can come of it.
    pub(super) fn max_length(&self, fields: &[Drawable]) -> usize {
        let of = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Value(source, encoding) => {
                let length = match source {
                    Source::Invocation => Invocation::MAX_LENGTH,
                    Source::Number => NUMBER_BYTES,
                    Source::Field(index) => fields[*index].max_length(),
                    // Limited when it comes: `RequestTemplate::check_target`.
                    Source::Answer(_) => 0,
                };
                length * if *encoding == Encoding::Percent { ENCODED_BYTES } else { 1 }
            }
        };
        self.0.iter().fold(0, |sum: usize, piece| sum.saturating_add(of(piece)))
    }

    /// Appends it with the values of a request.
    pub(super) fn write(&self, out: &mut Vec<u8>, values: Values) {
        for piece in &self.0 {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::Value(source, Encoding::AsIs) => write_value(out, *source, values),
                Piece::Value(Source::Field(index), Encoding::Percent) => {
                    push_encoded(out, values.drawn.value(*index));
                }
                Piece::Value(source, Encoding::Percent) => {
                    let mut value = Vec::new();
                    write_value(&mut value, *source, values);
                    push_encoded(out, &value);
                }
            }
        }
    }

    /// It with the values of a request, by itself.
    pub(super) fn render(&self, values: Values) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out, values);
        out
    }
}

fn write_value(out: &mut Vec<u8>, source: Source, values: Values) {
    match source {
        Source::Invocation => Invocation(values.moment).write(out),
        Source::Number => push_number(out, values.moment.number),
        Source::Field(index) => out.extend_from_slice(values.drawn.value(index)),
        Source::Answer(index) => out.extend_from_slice(&values.moment.answers[index]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Field;
    use proptest::prelude::*;

    fn fields() -> Vec<Drawable> {
        let field = |name| Drawable::new(7, "hello", name, &Field::Uuid {}).unwrap();
        ["n", "user-id"].map(field).into()
    }

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    #[test]
    fn names_are_found_between_braces() {
        let n = Part::Value(Source::Field(0));
        for (template, parts) in [
            ("", vec![]),
            ("plain", vec![text("plain")]),
            ("{{n}}", vec![n.clone()]),
            ("a{{ n }}b", vec![text("a"), n.clone(), text("b")]),
            ("{\"a\":{\"b\":{{n}}}}", vec![text("{\"a\":{\"b\":"), n.clone(), text("}}")]),
            ("{{{n}}}", vec![text("{"), n.clone(), text("}")]),
            ("{{{{n}}", vec![text("{{n}}")]),
            ("{{{{{{n}}", vec![text("{{"), n]),
            (
                "{{number}}{{invocation}}",
                vec![Part::Value(Source::Number), Part::Value(Source::Invocation)],
            ),
            ("}} { } ü", vec![text("}} { } ü")]),
        ] {
            assert_eq!(parse(template, &fields()).unwrap(), parts, "{template}");
        }
    }

    #[test]
    fn what_can_t_be_filled_in_is_named() {
        for (template, expected) in [
            ("{{n", "nothing closes the braces before \"n\""),
            ("x {{n} y", "nothing closes"),
            ("{{m}}", "no field \"m\"; there are invocation, number, n, user-id"),
            ("{{}}", "\"\" between braces"),
            ("{{\"a\": {\"b\": 1}}", "is not a field's name"),
        ] {
            let message = parse(template, &fields()).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_template_or_an_error(text in "[{}n a\"ü]{0,40}") {
            let _ = parse(&text, &fields());
        }

        #[test]
        fn text_without_double_braces_stays(text in "\\PC{0,60}") {
            prop_assume!(!text.contains(OPEN));
            let expected = if text.is_empty() { vec![] } else { vec![Part::Text(text.clone())] };
            prop_assert_eq!(parse(&text, &fields()).unwrap(), expected);
        }

        #[test]
        fn escaped_braces_come_out_as_they_were(text in "[a-z{} ]{0,40}") {
            prop_assume!(!text.contains("{{{"));
            let parts = parse(&text.replace(OPEN, "{{{{"), &fields()).unwrap();
            let out: String = parts.iter().map(|part| match part {
                Part::Text(text) => text.as_str(),
                Part::Value(_) => panic!("{parts:?}"),
            }).collect();
            prop_assert_eq!(out, text);
        }
    }
}
