//! Identifiers from the system's random numbers.

/// Bytes nobody can guess.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("Linux gives random numbers once it has booted");
    bytes
}

/// A random (version 4) UUID in its usual form: request ids and revision ids.
pub(crate) fn uuid() -> String {
    uuid::Builder::from_random_bytes(random()).into_uuid().to_string()
}

/// Names an instance: short, because it becomes part of paths and cgroup names.
pub(crate) fn instance() -> String {
    hex::encode(random::<8>())
}

/// Names a function URL: 32 lower-case letters and digits, as Lambda's.
pub(crate) fn url() -> String {
    hex::encode(random::<16>())
}

/// Names something in the staging folder.
pub(crate) fn staging() -> String {
    hex::encode(random::<12>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_their_form() {
        let id = uuid();
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'4');
        assert!(matches!(id.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
        assert_ne!(id, uuid());
    }
}
