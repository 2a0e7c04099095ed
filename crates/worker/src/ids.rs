//! Identifiers from the system's random numbers.

use std::cell::RefCell;

/// So many are asked for at a time: each request takes 32, and each asking is a system call.
const STOCK_BYTES: usize = 1024;

/// Random bytes that nobody had yet are those before `left`; the others are zeroed.
struct Stock {
    bytes: [u8; STOCK_BYTES],
    left: usize,
}

thread_local! {
    static STOCK: RefCell<Stock> = const { RefCell::new(Stock { bytes: [0; STOCK_BYTES], left: 0 }) };
}

/// Bytes nobody can guess. No process is forked that would go on to take some: it would take the same.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    const { assert!(N <= STOCK_BYTES) };
    STOCK.with_borrow_mut(|stock| {
        if stock.left < N {
            getrandom::fill(&mut stock.bytes)
                .expect("Linux gives random numbers once it has booted");
            stock.left = STOCK_BYTES;
        }
        let taken = &mut stock.bytes[stock.left - N..stock.left];
        stock.left -= N;
        let mut bytes = [0; N];
        bytes.copy_from_slice(taken);
        taken.fill(0);
        bytes
    })
}

/// A random (version 4) UUID in its usual form: request ids and revision ids.
pub(crate) fn uuid() -> String {
    uuid::Builder::from_random_bytes(random()).into_uuid().to_string()
}

/// A number that is uniform in 0 to 1, without the 1.
pub(crate) fn fraction() -> f64 {
    // As many bits as the result holds exactly.
    const BITS: u32 = f64::MANTISSA_DIGITS;
    let bits = u64::from_le_bytes(random()) >> (u64::BITS - BITS);
    #[expect(clippy::cast_precision_loss, reason = "there are no more bits than it holds")]
    let numerator = bits as f64;
    numerator / (1_u64 << BITS) as f64
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
    fn fractions_are_below_one_and_spread() {
        let draws: Vec<f64> = std::iter::repeat_with(fraction).take(1_000).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        let low = draws.iter().filter(|draw| **draw < 0.5).count();
        // Fifteen standard deviations.
        assert!((260..=740).contains(&low), "{low}");
    }

    #[test]
    fn no_bytes_are_given_twice() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..STOCK_BYTES {
            assert!(seen.insert(random::<16>().to_vec()));
            random::<3>();
        }
        assert!(seen.iter().all(|bytes| bytes.iter().any(|it| *it != 0)));
    }

    #[test]
    fn uuids_have_their_form() {
        let id = uuid();
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'4');
        assert!(matches!(id.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
        assert_ne!(id, uuid());
    }
}
