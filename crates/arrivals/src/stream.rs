use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

/// A named stream of random numbers, the same on every machine.
///
/// Derivation, for whoever wants to recompute a schedule:
///
/// * key = SHA-256(seed as 8 bytes, little-endian, followed by the label in UTF-8)
/// * the stream is the keystream of ChaCha with 8 rounds under that key, with a 64-bit nonce of zero
///   and a 64-bit block counter from zero, read as little-endian `u64`: x_0, x_1, ...
/// * uniform number in [0, 1): u_i = (x_i >> 11) / 2^53
/// * exponential number with mean 1: e_i = -ln(1 - u_i), with the logarithm of the `libm` crate
///   (musl's, in software, so that it rounds alike everywhere)
#[derive(Debug, Clone)]
pub struct RandomStream(ChaCha8Rng);

/// Bits of a double's significand: the finest uniform grid that doubles hold exactly.
const SIGNIFICAND_BITS: u32 = 53;
const UNIFORM_STEP: f64 = 1.0 / (1u64 << SIGNIFICAND_BITS) as f64;

impl RandomStream {
    /// The stream of this label (a function's name) under this seed.
    pub fn new(seed: u64, label: &str) -> Self {
        let key = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(label).finalize();
        Self(ChaCha8Rng::from_seed(key.into()))
    }

    /// The next number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> (u64::BITS - SIGNIFICAND_BITS)) as f64 * UNIFORM_STEP
    }

    /// The next exponentially distributed number, mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.uniform())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(seed: u64, label: &str) -> [u64; 3] {
        let mut stream = RandomStream::new(seed, label);
        std::array::from_fn(|_| stream.0.next_u64())
    }

    /// Computed by an independent implementation of the derivation above.
    #[test]
    fn known_answers() {
        assert_eq!(
            raw(7, "hello"),
            [0xe8d4_054d_5f80_f6cc, 0x77c5_7e28_2ccf_0c1a, 0x25c4_2ccc_a5ae_57b6]
        );
        assert_eq!(
            raw(0, ""),
            [0x4a76_ff63_8dd8_ea62, 0xe0fb_b03b_fabf_aeb5, 0x2d2a_3c97_4935_31c3]
        );
    }

    #[test]
    fn seed_and_label_both_matter() {
        let streams = [raw(1, "a"), raw(2, "a"), raw(1, "b"), raw(1, "")];
        for (i, one) in streams.iter().enumerate() {
            for other in &streams[i + 1..] {
                assert_ne!(one, other);
            }
        }
    }

    #[test]
    fn uniform_is_in_its_interval_with_the_right_moments() {
        const DRAWS: u32 = 100_000;
        let mut stream = RandomStream::new(1, "uniform");
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..DRAWS {
            let u = stream.uniform();
            assert!((0.0..1.0).contains(&u));
            sum += u;
            squares += u * u;
        }
        let mean = sum / f64::from(DRAWS);
        let variance = squares / f64::from(DRAWS) - mean * mean;
        // Five standard errors of each.
        assert!((mean - 0.5).abs() < 0.0046, "{mean}");
        assert!((variance - 1.0 / 12.0).abs() < 0.0012, "{variance}");
    }
}
