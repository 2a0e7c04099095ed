/// A whole number of 256 bits: what a product of two of 128 bits needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wide {
    high: u128,
    low: u128,
}

const HALF: u32 = 64;
const LOW_HALF: u128 = u64::MAX as u128;

impl Wide {
    pub(crate) fn product(a: u128, b: u128) -> Self {
        let ((a1, a0), (b1, b0)) = ((a >> HALF, a & LOW_HALF), (b >> HALF, b & LOW_HALF));
        // None of these sums can overflow: (2^64 - 1)^2 + 2 (2^64 - 1) < 2^128.
        let lowest = a0 * b0;
        let middle = a1 * b0 + (lowest >> HALF);
        let other = a0 * b1 + (middle & LOW_HALF);
        Self {
            high: a1 * b1 + (middle >> HALF) + (other >> HALF),
            low: (other << HALF) | (lowest & LOW_HALF),
        }
    }

    /// The sum, which must be below 2^256.
    pub(crate) fn plus(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        Self { high: self.high + other.high + u128::from(carry), low }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_product() {
        let most = Wide::product(u128::MAX, u128::MAX);
        // (2^128 - 1)^2 = 2^256 - 2^129 + 1
        assert_eq!(most, Wide { high: u128::MAX - 1, low: 1 });
    }

    proptest! {
        #[test]
        fn products_are_those_of_parts(a: u128, b: u128, c: u64) {
            // By 64 bits at a time, with what fits 128.
            let small = Wide::product(a >> 64, u128::from(c));
            prop_assert_eq!(small, Wide { high: 0, low: (a >> 64) * u128::from(c) });
            prop_assert_eq!(Wide::product(a, b), Wide::product(b, a));
            let shifted = Wide::product(a, 1 << 64);
            prop_assert_eq!(shifted, Wide { high: a >> 64, low: a << 64 });
            // a (b' + c) = a b' + a c
            let halved = b >> 1;
            let sum = Wide::product(a, halved).plus(Wide::product(a, u128::from(c)));
            prop_assert_eq!(sum, Wide::product(a, halved + u128::from(c)));
        }
    }
}
