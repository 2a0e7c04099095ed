//! What the text of a program says of its maps, since what bpftrace prints of them does not: whether they only grow, and
//! what they are keyed by.

use std::collections::{HashMap, HashSet};

/// What the program does with its maps.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    maps: HashMap<String, Map>,
    /// Whether it prints maps when it wants to.
    pub prints: bool,
}

/// What the program does with a map.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Map {
    pub keys: Vec<Key>,
    /// Its values count or add up.
    pub grows: bool,
    /// They count events.
    pub counts: bool,
    /// The program clears it where it prints it.
    pub is_cleared: bool,
    /// The program changes it by more than adding: what stands in it is no growth.
    is_level: bool,
    /// The program deletes keys: it holds what the program works with.
    pub is_scratch: bool,
}

/// What a part of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Cpu,
    Cgroup,
    Other,
}

impl Program {
    /// Reads a program. What it does not understand it passes over: bpftrace says what is wrong with it.
    pub(crate) fn read(text: &str) -> Self {
        let text = without_comments_and_strings(text);
        let mut program = Self::default();
        for block in blocks(&text) {
            program.read_block(&block);
        }
        for map in program.maps.values_mut().filter(|it| it.is_level) {
            (map.grows, map.counts) = (false, false);
        }
        program
    }

    fn read_block(&mut self, block: &Block<'_>) {
        let (text, mut printed, mut cleared) = (block.text, HashSet::new(), HashSet::new());
        for (at, _) in text.match_indices('@') {
            let before = text[..at].trim_end();
            let (name, after) = split_name(&text[at + 1..]);
            let (keys, after) = split_keys(after.trim_start());
            let map = self.maps.entry(name.to_owned()).or_default();
            if map.keys.is_empty() {
                map.keys = keys;
            }
            match called(before) {
                Some("clear" | "zero") => drop(cleared.insert(name)),
                Some("delete") => map.is_scratch = true,
                Some("print") => drop(printed.insert(name)),
                _ => map.assign(before, after.trim_start(), block.when),
            }
        }
        self.prints |= !printed.is_empty();
        // What is cleared elsewhere was not printed just before; what is cleared at the end was printed before that.
        for name in printed.intersection(&cleared).filter(|_| block.when != When::End) {
            self.maps.entry((*name).to_owned()).or_default().is_cleared = true;
        }
    }

    /// The map of this name, as bpftrace prints it.
    pub(crate) fn map(&self, name: &str) -> Map {
        self.maps.get(name.trim_start_matches('@')).cloned().unwrap_or_default()
    }
}

impl Map {
    fn assign(&mut self, before: &str, after: &str, when: When) {
        if after.starts_with("++") || before.ends_with("++") {
            (self.grows, self.counts) = (true, true);
        } else if after.starts_with("+=") {
            self.grows = true;
        } else if after.starts_with("--") || before.ends_with("--") || is_changed(after) {
            self.is_level = true;
        } else if let Some(value) = after.strip_prefix('=').filter(|it| !it.starts_with('=')) {
            let (function, rest) = split_name(value.trim_start());
            let is_called = rest.trim_start().starts_with('(');
            if is_called && matches!(function, "count" | "sum" | "hist" | "lhist" | "stats") {
                self.counts |= function == "count";
                self.grows = true;
            } else {
                // It begins at 0 anyway.
                let begins = when == When::Begin && function == "0" && !is_continued(rest);
                self.is_level |= !begins;
            }
        }
    }
}

/// Whether it is assigned to by an operator of its value: `-=`, `<<=`; not compared: `<=`, `!=`.
fn is_changed(after: &str) -> bool {
    ["-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="].iter().any(|it| after.starts_with(it))
}

/// Whether an expression goes on.
fn is_continued(rest: &str) -> bool {
    !rest.trim_start().starts_with([';', '}']) && !rest.trim().is_empty()
}

/// When a block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Begin,
    Probed,
    End,
}

/// What is done at probes, with their conditions.
struct Block<'a> {
    text: &'a str,
    when: When,
}

/// The blocks of a text without comments; what comes after the last, too.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut depth, mut start, mut when) = (Vec::new(), 0_usize, 0, When::Probed);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => {
                if depth == 0 {
                    when = when_probed(&text[start..at]);
                }
                depth += 1;
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    blocks.push(Block { text: &text[start..=at], when });
                    (start, when) = (at + 1, When::Probed);
                }
            }
            _ => {}
        }
    }
    blocks.push(Block { text: &text[start..], when });
    blocks
}

/// Of probes, separated by commas: those of the beginning and the end have no other parts.
fn when_probed(probes: &str) -> When {
    let of = |probe: &str| match probe.split_whitespace().last() {
        Some("BEGIN" | "begin") => When::Begin,
        Some("END" | "end") => When::End,
        _ => When::Probed,
    };
    let all: Vec<_> = probes.split(',').map(of).collect();
    // What also runs meanwhile is what counts.
    if all.iter().all(|it| *it == all[0]) { all[0] } else { When::Probed }
}

/// The function whose first argument comes next.
fn called(before: &str) -> Option<&str> {
    let before = before.strip_suffix('(')?.trim_end();
    let start = before.rfind(|it: char| !is_of_name(it)).map_or(0, |at| at + 1);
    // The character before may take several bytes.
    before.get(start..)
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn split_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(|it: char| !is_of_name(it)).unwrap_or(text.len()))
}

/// The parts of a key in brackets, and what comes after.
fn split_keys(text: &str) -> (Vec<Key>, &str) {
    if !text.starts_with('[') {
        return (Vec::new(), text);
    }
    let (mut depth, mut start, mut keys) = (0, 1, Vec::new());
    let key = |text: &str| match text.trim() {
        "cpu" => Key::Cpu,
        "cgroup" => Key::Cgroup,
        _ => Key::Other,
    };
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'(' => depth += 1,
            b']' | b')' => depth -= 1,
            b',' if depth == 1 => {
                keys.push(key(&text[start..at]));
                start = at + 1;
            }
            _ => {}
        }
        if depth == 0 {
            keys.push(key(&text[start..at]));
            return (keys, &text[at + 1..]);
        }
    }
    (Vec::new(), "")
}

/// The text with blanks instead of comments and strings, as long as before.
fn without_comments_and_strings(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        let rest = &text.as_bytes()[at..];
        match rest[0] {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            // `uprobe:/usr/lib/*/libc.so.6:malloc` has no comment.
            b':' if depth == 0 => {
                at += 1 + rest[1..].iter().take_while(|it| is_of_path(**it)).count();
                continue;
            }
            _ => {}
        }
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|it| *it == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            rest.windows(2).skip(2).position(|it| it == b"*/").map_or(rest.len(), |end| end + 4)
        } else if rest.starts_with(b"\"") {
            string_length(rest)
        } else {
            at += 1;
            continue;
        };
        bytes[at..at + length].fill(b' ');
        at += length;
    }
    // Blanks are whole characters, as what they stand for began and ended with a byte of ASCII.
    String::from_utf8_lossy(&bytes).into_owned()
}

fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./#+*".contains(&byte)
}

fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_known_by_what_the_program_does_with_them() {
        let program = Program::read(
            "// @commented = count();\n/* @c = sum(1) */\nBEGIN { printf(\"@quoted = count(); \\\" @q++ é\"); }\n\
             kprobe:a { @start[tid] = nsecs; @calls = count(); @by_ns[cpu, args->a[0], cgroup] = sum(f(1, 2)); }\n\
             kretprobe:a /@start[tid]/ { @wait_ns = hist(nsecs - @start[tid]); delete(@start[tid]); @n++; ++@m;\n\
             @last = nsecs; @most = max(1); @total += 2; @same = @last == count; @ = lhist(1, 0, 9, 1); }\n",
        );
        let map = |name: &str| program.map(name);
        assert!(!program.prints);
        assert_eq!(program.maps.len(), 11, "{:?}", program.maps.keys());
        assert!(map("@calls").grows && map("@calls").counts && map("@n").counts);
        assert!(map("@by_ns").grows && !map("@by_ns").counts);
        assert_eq!(map("@by_ns").keys, [Key::Cpu, Key::Other, Key::Cgroup]);
        assert!(map("@start").is_scratch && !map("@start").grows);
        assert!(map("@wait_ns").grows && map("@total").grows && map("@").grows);
        assert!(!map("@last").grows && !map("@most").grows && !map("@same").grows);
    }

    #[test]
    fn a_program_that_prints_and_clears_is_known() {
        let program =
            Program::read("interval:s:1 { print ( @a, 5 ); print(@b[1]); clear(@a); zero(@b[1]) }");
        assert!(program.prints && program.map("a").is_cleared && program.map("b").is_cleared);
        // What is none is passed over.
        for text in ["@a[", "@", "@a = ", "\"@a", "/* @a", "// é", "@é(", "é(@a"] {
            assert!(!Program::read(text).prints, "{text}");
        }
    }

    #[test]
    fn maps_that_are_changed_otherwise_are_levels() {
        for change in [
            "@n--",
            "--@n",
            "@n -= 1",
            "@n = 0",
            "@n = 5",
            "@n = $x",
            "@n[1] = nsecs",
            "@n >>= 1",
            "@n = max(1)",
        ] {
            let text = format!("kprobe:a {{ @n++; }} kretprobe:a {{ {change}; }}");
            let map = Program::read(&text).map("@n");
            assert!(!map.grows && !map.counts, "{change}");
            let text = format!("kretprobe:a {{ {change}; }} kprobe:a {{ @n += 2; }}");
            assert!(!Program::read(&text).map("@n").grows, "{change}");
        }
        for same in ["@n == 0", "@n <= 1", "@n >= 1", "@n != 1", "$x = @n"] {
            let text = format!("kprobe:a /{same}/ {{ @n++; }}");
            assert!(Program::read(&text).map("@n").grows, "{same}");
        }
        let begins = |first: &str| format!("BEGIN {{ @n = {first}; }} kprobe:a {{ @n++ }}");
        assert!(Program::read(&begins("0")).map("n").grows);
        assert!(!Program::read(&begins("0 + 7")).map("n").grows);
        assert!(!Program::read(&begins("7")).map("n").grows);
    }

    #[test]
    fn a_map_is_cleared_where_it_is_printed() {
        let is_cleared = |text: &str| Program::read(text).map("a").is_cleared;
        assert!(is_cleared("interval:s:1 { if (1) { print(@a); } clear(@a); }"));
        assert!(is_cleared("interval:s:1, END { print(@a); clear(@a); }"));
        for text in [
            "interval:s:1 { print(@a); } END { clear(@a); }",
            "END { print(@a); clear(@a); }",
            "interval:s:1 { print(@a); } interval:s:60 { clear(@a); }",
            "interval:s:1 { print(@b); clear(@a); }",
        ] {
            assert!(!is_cleared(text), "{text}");
        }
    }

    #[test]
    fn paths_have_no_comments() {
        for text in [
            "uprobe:/usr/lib/*/libc.so.6:malloc { @n = count(); }",
            "uprobe:/a//b:c /* @c++ */ { @n = count(); // @d++ }\n }",
        ] {
            let program = Program::read(text);
            assert_eq!(program.maps.keys().collect::<Vec<_>>(), ["n"]);
            assert!(program.map("n").grows);
        }
    }
}
