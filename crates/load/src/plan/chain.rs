//! Chains: which streams are stages of which, checked.
//!
//! A stage waits for earlier streams only, so that stages cannot wait for one another in a circle.
//! All that it waits for belong to one chain, which has one head: the stream whose requests begin it.

use std::collections::HashSet;

use crate::config::{After, Stream};
use crate::error::LoadError;
use crate::request::{Ancestor, Reference};

/// A stream as a stage of a chain.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Index of the stream that begins the chain.
    pub head: usize,
    /// Its place among the streams of the chain; the head's is 0.
    pub index: usize,
    /// How many stages the chain has; of the head only.
    pub stages: usize,
    /// How many answers a request of it waits for.
    pub predecessors: usize,
    /// Whether it follows requests that failed, too.
    pub after_failures: bool,
    /// Indices of the streams that wait for its answers.
    pub followers: Vec<usize>,
    /// What its requests have of earlier answers.
    pub references: Vec<Reference>,
    /// Whether later requests are made of its answers.
    pub keeps_answer: bool,
}

impl Stage {
    fn new(head: usize) -> Self {
        Self {
            head,
            index: 0,
            stages: 1,
            predecessors: 0,
            after_failures: false,
            followers: Vec::new(),
            references: Vec::new(),
            keeps_answer: false,
        }
    }
}

/// Of each stream its part in a chain; none of those that are in none.
pub(super) fn stages(streams: &[Stream]) -> Result<Vec<Option<Stage>>, LoadError> {
    let mut stages: Vec<Option<Stage>> = streams.iter().map(|_| None).collect();
    let mut names = HashSet::new();
    for (index, stream) in streams.iter().enumerate() {
        let Some(after) = &stream.after else { continue };
        let wrong = |reason: String| LoadError::Chain { stream: stream.function.clone(), reason };
        check(stream, after, index).map_err(wrong)?;
        for &earlier in &after.streams {
            stages[earlier].get_or_insert_with(|| Stage::new(earlier)).followers.push(index);
        }
        let of = |earlier: &usize| stages[*earlier].as_ref().expect("it was made just now");
        let head = of(&after.streams[0]).head;
        if after.streams.iter().any(|earlier| of(earlier).head != head) {
            return Err(wrong("it waits for streams of different chains".to_owned()));
        }
        let first = stages[head].as_mut().expect("it was made just now");
        let position = first.stages;
        if position == 1 {
            check_name(&streams[head], head, &mut names).map_err(wrong)?;
        }
        first.stages += 1;
        stages[index] = Some(Stage {
            index: position,
            predecessors: after.streams.len(),
            after_failures: after.after_failures,
            ..Stage::new(head)
        });
        check_name(stream, head, &mut names).map_err(wrong)?;
    }
    Ok(stages)
}

/// The stages before a stream, whose answers it may use.
pub(super) fn ancestors<'a>(streams: &'a [Stream], stream: &Stream) -> Vec<Ancestor<'a>> {
    let direct = stream.after.as_ref().map_or(&[][..], |after| &after.streams);
    let mut is_before = vec![false; streams.len()];
    let mut left = direct.to_vec();
    while let Some(earlier) = left.pop() {
        if !std::mem::replace(&mut is_before[earlier], true) {
            left.extend(streams[earlier].after.iter().flat_map(|after| &after.streams));
        }
    }
    let ancestor = |stream: usize| Ancestor {
        stage: streams[stream].stage.as_deref().unwrap_or_default(),
        stream,
        is_direct: direct.contains(&stream),
    };
    (0..streams.len()).filter(|&stream| is_before[stream]).map(ancestor).collect()
}

fn check(stream: &Stream, after: &After, index: usize) -> Result<(), String> {
    if after.streams.is_empty() {
        return Err("after.streams is empty: name the streams that it waits for".to_owned());
    }
    if let Some(later) = after.streams.iter().find(|earlier| **earlier >= index) {
        return Err(format!(
            "it waits for stream {later}, and is number {index} itself (from 0): a stage comes \
             after those that it waits for"
        ));
    }
    let mut seen = after.streams.clone();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() < after.streams.len() {
        return Err("it waits for a stream twice".to_owned());
    }
    if stream.start_ns != 0 {
        return Err(
            "start_ns is the head's: a later stage starts when answers are there".to_owned()
        );
    }
    Ok(())
}

/// That a stage has a name, which no other of its chain has: `names` are those of the stages so far,
/// with their chains' heads.
fn check_name<'a>(
    stream: &'a Stream,
    head: usize,
    names: &mut HashSet<(usize, &'a str)>,
) -> Result<(), String> {
    let Some(name) = stream.stage.as_deref() else {
        return Err(format!("{:?} has no name as a stage", stream.function));
    };
    if name.is_empty() || !name.chars().all(is_in_name) {
        return Err(format!("{name:?} is no name of a stage: use letters, digits, _ and -"));
    }
    if !names.insert((head, name)) {
        return Err(format!("there are two stages {name:?} in its chain"));
    }
    Ok(())
}

fn is_in_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-".contains(character)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn streams(after: &[&[usize]]) -> Vec<Stream> {
        let stream = |(index, after): (usize, &&[usize])| {
            let mut stream = json!({"function": "f", "targets": [], "stage": format!("s{index}")});
            if !after.is_empty() {
                stream["after"] = json!({"streams": after});
            }
            serde_json::from_value(stream).unwrap()
        };
        after.iter().enumerate().map(stream).collect()
    }

    #[test]
    fn a_diamond() {
        let streams = streams(&[&[], &[0], &[0], &[1, 2], &[]]);
        let stages = stages(&streams).unwrap();
        assert!(stages[4].is_none());
        let of = |index: usize| stages[index].as_ref().unwrap();
        assert_eq!((of(0).followers.as_slice(), of(0).stages), (&[1, 2][..], 4));
        assert_eq!((of(3).head, of(3).index, of(3).predecessors), (0, 3, 2));
        let before: Vec<_> = ancestors(&streams, &streams[3])
            .into_iter()
            .map(|one| (one.stage, one.is_direct))
            .collect();
        assert_eq!(before, [("s0", false), ("s1", true), ("s2", true)]);
    }

    #[test]
    fn a_sequence_of_a_thousand_stages() {
        const STAGES: usize = 1_000;
        let before = |index: usize| index.checked_sub(1).into_iter().collect();
        let after: Vec<Vec<usize>> = (0..STAGES).map(before).collect();
        let after: Vec<&[usize]> = after.iter().map(Vec::as_slice).collect();
        let streams = streams(&after);
        let stages = stages(&streams).unwrap();
        assert_eq!(stages[0].as_ref().unwrap().stages, STAGES);
        for (index, stream) in streams.iter().enumerate() {
            assert_eq!(ancestors(&streams, stream).len(), index);
        }
    }

    #[test]
    fn what_is_no_chain_is_refused_with_its_reason() {
        type Change = fn(&mut Value);
        let cases: [(&str, Change); 7] = [
            ("streams is empty", |s| s["after"]["streams"] = json!([])),
            ("it waits for stream 2", |s| s["after"]["streams"] = json!([2])),
            ("waits for a stream twice", |s| s["after"]["streams"] = json!([0, 0])),
            ("different chains", |s| s["after"]["streams"] = json!([0, 1])),
            ("start_ns is the head's", |s| s["start_ns"] = 5.into()),
            ("no name as a stage", |s| s["stage"] = Value::Null),
            ("two stages \"s0\"", |s| s["stage"] = "s0".into()),
        ];
        for (expected, change) in cases {
            let mut all = streams(&[&[], &[]]);
            let mut last =
                json!({"function": "f", "targets": [], "stage": "s2", "after": {"streams": [0]}});
            change(&mut last);
            all.push(serde_json::from_value(last).unwrap());
            let error = stages(&all).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected:?} not in {error:?}");
        }
    }
}
