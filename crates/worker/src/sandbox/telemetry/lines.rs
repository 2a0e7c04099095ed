//! Output cut into lines.

/// A longer line is cut, so that one without an end takes no memory.
pub(super) const MAX_LINE_BYTES: usize = 32 * 1024;

/// What was printed since the last end of a line.
#[derive(Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Takes what was printed, and passes each line on that is whole.
    pub(super) fn take(&mut self, printed: &[u8], mut pass: impl FnMut(&[u8])) {
        for piece in printed.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_whole) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            for part in text.chunks(MAX_LINE_BYTES) {
                if self.0.len() + part.len() > MAX_LINE_BYTES {
                    self.end(&mut pass);
                }
                self.0.extend_from_slice(part);
            }
            if is_whole {
                self.end(&mut pass);
            }
        }
    }

    /// Passes on what there is of a line that has no end yet.
    pub(super) fn end(&mut self, mut pass: impl FnMut(&[u8])) {
        if !self.0.is_empty() {
            pass(&self.0);
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_come() {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for piece in ["a", "b\nc\n\nd", "", "\ne"] {
            lines.take(piece.as_bytes(), |line| seen.push(line.to_vec()));
        }
        assert_eq!(seen, [b"ab", &b"c"[..], b"d"]);
        lines.end(|line| seen.push(line.to_vec()));
        assert_eq!(seen.last().unwrap(), b"e");
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let (mut lines, mut sizes) = (Lines::default(), Vec::new());
        lines.take(&vec![b'x'; 2 * MAX_LINE_BYTES + 5], |line| sizes.push(line.len()));
        lines.take(b"y\n", |line| sizes.push(line.len()));
        assert_eq!(sizes, [MAX_LINE_BYTES, MAX_LINE_BYTES, 6]);
    }
}
