use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::NS_PER_S;
use crate::error::ArrivalError;

/// A rate per second, kept as the fraction that its decimal text says, so that nothing drifts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    numerator: u128,
    denominator: u128,
}

impl Rate {
    /// `numerator / denominator` per second, in lowest terms.
    pub fn new(numerator: u128, denominator: u128) -> Result<Self, ArrivalError> {
        if numerator == 0 {
            return Err(ArrivalError::ZeroRate);
        }
        if denominator == 0 {
            return Err(ArrivalError::NotARate { text: format!("{numerator}/0") });
        }
        let common = greatest_common_divisor(numerator, denominator);
        Ok(Self { numerator: numerator / common, denominator: denominator / common })
    }

    pub(crate) fn numerator(self) -> u128 {
        self.numerator
    }

    pub(crate) fn denominator(self) -> u128 {
        self.denominator
    }

    /// The nearest double, for formulas that are not exact anyway.
    pub fn per_second(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// 10^9 / rate, as a double: the mean time between arrivals.
    pub fn mean_gap_ns(self) -> f64 {
        NS_PER_S as f64 * self.denominator as f64 / self.numerator as f64
    }
}

pub(crate) fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// `12.5` as 125 and 10.
fn decimal(text: &str) -> Option<Result<(u128, u128), ArrivalError>> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    if text.ends_with('.') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let too_precise = || ArrivalError::RateTooPrecise { text: text.to_owned() };
    let parsed = || {
        let numerator = format!("{whole}{fraction}").parse().ok()?;
        let denominator = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        Some((numerator, denominator))
    };
    Some(parsed().ok_or_else(too_precise))
}

/// `0.5/0.25` as 50 and 25: over and under the line, not in lowest terms.
fn fraction(text: &str) -> Result<(u128, u128), ArrivalError> {
    let not_a_rate = || ArrivalError::NotARate { text: text.to_owned() };
    let trimmed = text.trim();
    let (over, under) = trimmed.split_once('/').unwrap_or((trimmed, "1"));
    let (numerator, tens) = decimal(over).ok_or_else(not_a_rate)??;
    let (denominator, more_tens) = decimal(under).ok_or_else(not_a_rate)??;
    let multiply = |a: u128, b: u128| {
        a.checked_mul(b).ok_or_else(|| ArrivalError::RateTooPrecise { text: text.to_owned() })
    };
    Ok((multiply(numerator, more_tens)?, multiply(denominator, tens)?))
}

impl FromStr for Rate {
    type Err = ArrivalError;

    fn from_str(text: &str) -> Result<Self, ArrivalError> {
        let (numerator, denominator) = fraction(text)?;
        Self::new(numerator, denominator)
    }
}

/// The shortest exact form: a decimal where there is one, else a fraction.
impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tens: u128 = 1;
        for digits in 0..=38 {
            if tens.is_multiple_of(self.denominator) {
                let Some(scaled) = self.numerator.checked_mul(tens / self.denominator) else {
                    break;
                };
                if digits == 0 {
                    return write!(formatter, "{scaled}");
                }
                return write!(formatter, "{}.{:0digits$}", scaled / tens, scaled % tens);
            }
            match tens.checked_mul(10) {
                Some(more) => tens = more,
                None => break,
            }
        }
        write!(formatter, "{}/{}", self.numerator, self.denominator)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RateVisitor(PhantomData))
    }
}

/// Reads what can be read from a rate's text.
struct RateVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err = ArrivalError>> Visitor<'_> for RateVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a rate per second, as decimal text or a number")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }
    // A double's text is the shortest decimal that reads back as it: what was written.
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }
}

/// A rate per second that may be zero, where something else goes on at another rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateOrZero(Option<Rate>);

impl RateOrZero {
    /// The rate, if it is not zero.
    pub fn rate(self) -> Option<Rate> {
        self.0
    }

    pub(crate) fn numerator(self) -> u128 {
        self.0.map_or(0, Rate::numerator)
    }

    pub(crate) fn denominator(self) -> u128 {
        self.0.map_or(1, Rate::denominator)
    }

    /// The nearest double, for formulas that are not exact anyway.
    pub fn per_second(self) -> f64 {
        self.0.map_or(0.0, Rate::per_second)
    }
}

impl From<Rate> for RateOrZero {
    fn from(rate: Rate) -> Self {
        Self(Some(rate))
    }
}

impl FromStr for RateOrZero {
    type Err = ArrivalError;

    fn from_str(text: &str) -> Result<Self, ArrivalError> {
        match text.parse::<Rate>() {
            // 0/0 is no rate, and neither is 5/0.
            Err(ArrivalError::ZeroRate) if fraction(text)?.1 != 0 => Ok(Self(None)),
            Err(ArrivalError::ZeroRate) => Err(ArrivalError::NotARate { text: text.to_owned() }),
            other => other.map(Self::from),
        }
    }
}

impl fmt::Display for RateOrZero {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rate) => rate.fmt(formatter),
            None => formatter.write_str("0"),
        }
    }
}

impl Serialize for RateOrZero {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RateOrZero {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RateVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(text: &str) -> (u128, u128) {
        let rate: Rate = text.parse().unwrap();
        (rate.numerator(), rate.denominator())
    }

    #[test]
    fn decimal_text_becomes_the_exact_fraction() {
        assert_eq!(parts("100"), (100, 1));
        assert_eq!(parts("0.1"), (1, 10));
        assert_eq!(parts("12.50"), (25, 2));
        assert_eq!(parts(" 1/3 "), (1, 3));
        assert_eq!(parts("0.5/0.25"), (2, 1));
        assert_eq!(parts("0.166666666666666667"), (166_666_666_666_666_667, 10u128.pow(18)));
    }

    #[test]
    fn what_is_no_rate_is_refused_with_a_sentence() {
        for text in ["", "NaN", "inf", "-1", "1e3", "1.", ".5", "1/", "1/0x", "1//2", "١"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(matches!(error, ArrivalError::NotARate { .. }), "{text:?}: {error}");
        }
        for text in ["0", "0.000", "0/5"] {
            assert_eq!(text.parse::<Rate>().unwrap_err(), ArrivalError::ZeroRate, "{text:?}");
        }
        assert!(matches!("1/0".parse::<Rate>(), Err(ArrivalError::NotARate { .. })));
        let digits = "9".repeat(40);
        assert!(matches!(digits.parse::<Rate>(), Err(ArrivalError::RateTooPrecise { .. })));
    }

    #[test]
    fn json_takes_text_and_numbers() {
        for (json, text) in [("\"0.1\"", "0.1"), ("0.1", "0.1"), ("250", "250"), ("1e3", "1000")] {
            assert_eq!(serde_json::from_str::<Rate>(json).unwrap().to_string(), text, "{json}");
        }
        for json in ["0", "-5", "-0.5", "null", "\"fast\"", "1e-400"] {
            assert!(serde_json::from_str::<Rate>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn only_where_zero_is_allowed_it_is_read() {
        for json in ["\"0\"", "0", "\"0.00\"", "\"0/3\"", "0.0"] {
            let rate: RateOrZero = serde_json::from_str(json).unwrap();
            assert_eq!((rate, rate.numerator(), rate.denominator()), (RateOrZero(None), 0, 1));
        }
        let half: RateOrZero = "0.5".parse().unwrap();
        assert_eq!((half.to_string(), half.per_second()), ("0.5".to_owned(), 0.5));
        assert_eq!(serde_json::to_string(&RateOrZero::default()).unwrap(), "\"0\"");
        for text in ["0/0", "1/0", "-1", "NaN", ""] {
            let error = text.parse::<RateOrZero>().unwrap_err();
            assert!(matches!(error, ArrivalError::NotARate { .. }), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn display_reads_back(numerator in 1u128..1_000_000_000_000, denominator in 1u128..1_000_000_000) {
            let rate = Rate::new(numerator, denominator).unwrap();
            prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
        }
    }
}
