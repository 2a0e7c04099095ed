use std::f64::consts::TAU;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
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
/// * normal number with mean 0 and variance 1, from two uniform numbers: sqrt(-2 ln(1 - u_i)) x
///   cos(2 pi u_(i+1)) (Box and Muller 1958; the sine is not used, so that no state is kept)
/// * gamma number of shape a and scale 1 (Marsaglia and Tsang 2000): with d = a - 1/3 and
///   c = 1 / sqrt(9 d), draw a normal number z; if v = (1 + c z)^3 is not above zero, begin again;
///   draw u; if ln(1 - u) < z^2/2 + d - d v + d ln v it is d v, else begin again. For a < 1: the
///   gamma number of shape a + 1, times (1 - u)^(1/a) with a u drawn after it.
#[derive(Debug, Clone)]
pub struct RandomStream {
    numbers: ChaCha8Rng,
    seed: u64,
    label: String,
}

/// Bits of a double's significand: the finest uniform grid that doubles hold exactly.
pub(crate) const SIGNIFICAND_BITS: u32 = 53;
const UNIFORM_STEP: f64 = 1.0 / (1u64 << SIGNIFICAND_BITS) as f64;

impl RandomStream {
    /// The stream of this label (a function's name) under this seed.
    pub fn new(seed: u64, label: &str) -> Self {
        let key = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(label).finalize();
        Self { numbers: ChaCha8Rng::from_seed(key.into()), seed, label: label.to_owned() }
    }

    /// The stream of part `index` of what this stream is for: its label is this one's, a slash and
    /// the index. It does not depend on how much of this stream was drawn.
    #[must_use]
    pub fn part(&self, index: usize) -> Self {
        Self::new(self.seed, &format!("{}/{index}", self.label))
    }

    /// The next number in [0, 1), as a whole number of 2^53 parts.
    pub(crate) fn uniform_parts(&mut self) -> u64 {
        self.numbers.next_u64() >> (u64::BITS - SIGNIFICAND_BITS)
    }

    /// The next number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.uniform_parts() as f64 * UNIFORM_STEP
    }

    /// floor(u x range / parts) of the next uniform number u, exactly. `range` is below 2^64.
    pub fn whole_below(&mut self, range: u64, parts: u64) -> u64 {
        let scaled = u128::from(self.uniform_parts()) * u128::from(range) / u128::from(parts);
        // floor(floor(a / b) / c) = floor(a / (b x c)) for whole numbers.
        (scaled >> SIGNIFICAND_BITS) as u64
    }

    /// The next exponentially distributed number, mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.uniform())
    }

    /// The next normally distributed number, mean 0 and variance 1.
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(TAU * self.uniform())
    }

    /// The next gamma distributed number of this shape (above zero), scale 1: its mean and variance
    /// are the shape.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let larger = self.gamma(shape + 1.0);
            return larger * libm::pow(1.0 - self.uniform(), 1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let z = self.normal();
            let root = 1.0 + c * z;
            if root <= 0.0 {
                continue;
            }
            let v = root * root * root;
            let bound = 0.5 * z * z + d - d * v + d * libm::log(v);
            if libm::log(1.0 - self.uniform()) < bound {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{
        KS_CRITICAL, gamma_distribution, kolmogorov_smirnov, normal_distribution,
    };

    fn raw(seed: u64, label: &str) -> [u64; 3] {
        let mut stream = RandomStream::new(seed, label);
        std::array::from_fn(|_| stream.numbers.next_u64())
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

    #[test]
    fn a_part_s_stream_is_that_of_its_label() {
        let mut whole = RandomStream::new(7, "mix");
        whole.uniform();
        assert_eq!(
            whole.part(2).numbers.next_u64(),
            RandomStream::new(7, "mix/2").numbers.next_u64()
        );
        let nested = whole.part(2).part(0).numbers.next_u64();
        assert_eq!(nested, RandomStream::new(7, "mix/2/0").numbers.next_u64());
    }

    #[test]
    fn whole_numbers_are_the_floor_of_the_product() {
        let stream = RandomStream::new(3, "whole");
        for (range, parts) in [(1, 1), (10, 3), (60_000_000_000, 7), (u64::MAX, 1), (0, 5)] {
            let found = stream.clone().whole_below(range, parts);
            let exact = u128::from(stream.clone().uniform_parts()) * u128::from(range)
                / (u128::from(parts) << 53);
            assert_eq!(u128::from(found), exact, "{range} / {parts}");
        }
    }

    #[test]
    fn normal_and_gamma_numbers_have_their_distributions() {
        let mut stream = RandomStream::new(1, "normal");
        let sample = (0..20_000).map(|_| stream.normal()).collect();
        assert!(kolmogorov_smirnov(sample, normal_distribution) < KS_CRITICAL);
        for shape in [0.05, 0.7, 1.0, 4.0, 400.0] {
            let sample =
                |stream: &mut RandomStream| (0..20_000).map(|_| stream.gamma(shape)).collect();
            let statistic =
                kolmogorov_smirnov(sample(&mut stream), |x| gamma_distribution(shape, x));
            assert!(statistic < KS_CRITICAL, "shape {shape}: {statistic}");
            // The test sees a shape that is 10 % off.
            let statistic =
                kolmogorov_smirnov(sample(&mut stream), |x| gamma_distribution(1.1 * shape, x));
            assert!(statistic > KS_CRITICAL, "shape {shape}: {statistic}");
        }
    }
}
