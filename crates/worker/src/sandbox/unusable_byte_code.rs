//! Byte code of the platform's that instances could not use: damaged, or another's.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Functions that are remembered.
const MAX_FUNCTIONS: usize = 64;

/// How many files of each function's byte code were unusable, as its instances say.
#[derive(Debug, Default)]
pub(super) struct UnusableByteCode(Mutex<BTreeMap<String, u32>>);

impl UnusableByteCode {
    pub(super) fn note(&self, function: &str, files: u32) {
        let mut functions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if functions.len() < MAX_FUNCTIONS && !functions.contains_key(function) {
            tracing::warn!(function, "{files} files of its byte code could not be used");
            functions.insert(function.to_owned(), files);
        }
    }

    pub(super) fn forget(&self, function: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(function);
    }

    /// A sentence for each function.
    pub(super) fn refusals(&self) -> Vec<String> {
        let functions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sentence = |(function, files): (&String, &u32)| {
            format!(
                "The function {function}: byte code that the platform keeps of its package is damaged or another's \
                 ({files} of its files); its sources are compiled at each start until the folder bytecode of the \
                 state folder is removed while the platform is stopped."
            )
        };
        functions.iter().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_has_one_sentence_until_it_is_changed() {
        let unusable = UnusableByteCode::default();
        for function in 0..1_000 {
            for files in 1..3 {
                unusable.note(&function.to_string(), files);
            }
        }
        assert_eq!(unusable.refusals().len(), MAX_FUNCTIONS);
        assert!(unusable.refusals()[0].starts_with("The function 0: "));
        unusable.forget("0");
        assert!(unusable.refusals()[0].starts_with("The function 1: "));
    }
}
