//! From the limits that are asked for to lines of a `schemata` file, within what the machine can do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Limits that are asked for; without any there are none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Of the last-level cache, in bytes, in each domain.
    #[serde(default)]
    pub llc_bytes: Option<u64>,
    /// Of the last-level cache, in ways, instead.
    #[serde(default)]
    pub ways: Option<u32>,
    /// Which of its ways, as a hexadecimal mask, instead.
    #[serde(default)]
    pub mask: Option<String>,
    /// Of the memory's bandwidth, in per cent.
    #[serde(default)]
    pub bandwidth_percent: Option<f64>,
}

/// What the cache of the machine can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cache {
    /// The resources that limit it: `L3`, or `L3DATA` and `L3CODE`.
    pub resources: Vec<String>,
    pub cbm_mask: u64,
    pub min_cbm_bits: u32,
    /// Whether the ways of a mask may lie apart.
    pub is_sparse: bool,
    /// By domain.
    pub domains: BTreeMap<String, Domain>,
}

/// A cache of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Domain {
    /// Of a way, if that can be known.
    pub way_bytes: Option<u64>,
    /// Ways that nobody may share: exclusive, or locked.
    pub taken: u64,
}

/// What the bandwidth of the machine can be limited to, in per cent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bandwidth {
    pub min: u32,
    pub step: u32,
    pub domains: Vec<String>,
}

/// Limits as they are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Limited {
    /// By domain of the cache: the mask, and bytes if the size of a way is known.
    pub masks: BTreeMap<String, (u64, Option<u64>)>,
    pub bandwidth_percent: Option<u32>,
    /// Lines of `schemata`, each with its end.
    pub schemata: String,
}

impl Wanted {
    /// Whether it asks for a limit of the cache.
    pub(crate) fn of_cache(&self) -> bool {
        self.llc_bytes.is_some() || self.ways.is_some() || self.mask.is_some()
    }

    /// Why it can be no limit anywhere.
    pub(crate) fn check(&self) -> Result<(), String> {
        let of_cache = [self.llc_bytes.is_some(), self.ways.is_some(), self.mask.is_some()];
        match of_cache.iter().filter(|it| **it).count() {
            0 if self.bandwidth_percent.is_none() => {
                Err("limits are empty: llc, ways, mask or bandwidth".into())
            }
            0 | 1 => Ok(()),
            _ => Err("the cache is limited twice: by one of llc, ways and mask".into()),
        }
    }

    /// The limits in the machine's terms; the error says what is possible.
    pub(crate) fn fit(
        &self,
        cache: Option<&Cache>,
        bandwidth: Option<&Bandwidth>,
    ) -> Result<Limited, String> {
        self.check()?;
        let mut limited = Limited::default();
        if self.of_cache() {
            let cache =
                cache.ok_or("the last-level cache cannot be limited here (no CAT: no info/L3)")?;
            for (domain, able) in &cache.domains {
                let mask = self.mask_of(cache, domain, able)?;
                let bytes = able.way_bytes.map(|it| it * u64::from(mask.count_ones()));
                limited.masks.insert(domain.clone(), (mask, bytes));
            }
            for resource in &cache.resources {
                let masks = limited.masks.iter().map(|(id, (mask, _))| format!("{id}={mask:x}"));
                limited.schemata += &line(resource, masks);
            }
        }
        if let Some(percent) = self.bandwidth_percent {
            let able = bandwidth
                .ok_or("the memory's bandwidth cannot be limited here (no MBA: no info/MB)")?;
            let percent = able.fit(percent)?;
            limited.bandwidth_percent = Some(percent);
            limited.schemata +=
                &line("MB", able.domains.iter().map(|id| format!("{id}={percent}")));
        }
        Ok(limited)
    }

    fn mask_of(&self, cache: &Cache, domain: &str, able: &Domain) -> Result<u64, String> {
        if let Some(text) = &self.mask {
            return cache.checked(text, domain, able);
        }
        let ways = match (self.ways, self.llc_bytes) {
            (Some(ways), _) => ways,
            (None, Some(bytes)) => cache.ways_within(bytes, domain, able)?,
            (None, None) => cache.cbm_mask.count_ones(),
        };
        let most = cache.cbm_mask.count_ones();
        if ways < cache.min_cbm_bits || ways > most {
            return Err(format!(
                "{ways} ways of the last-level cache are out of range: it has {most}, and a limit at least {}",
                cache.min_cbm_bits
            ));
        }
        cache.lowest(ways, able.taken).ok_or_else(|| {
            format!(
                "no {ways} ways of the last-level cache {domain} lie side by side that no other group has for itself"
            )
        })
    }
}

impl Cache {
    /// A mask that somebody wrote.
    fn checked(&self, text: &str, domain: &str, able: &Domain) -> Result<u64, String> {
        let mask =
            hexadecimal(text).ok_or_else(|| format!("{text:?} is no mask: hexadecimal digits"))?;
        if mask & !self.cbm_mask != 0 {
            return Err(format!(
                "the mask {mask:x} has ways that the last-level cache has not: its mask is {:x}",
                self.cbm_mask
            ));
        }
        if mask.count_ones() < self.min_cbm_bits {
            return Err(format!(
                "the mask {mask:x} has {} ways, and a limit has at least {}",
                mask.count_ones(),
                self.min_cbm_bits
            ));
        }
        if !self.is_sparse && !is_contiguous(mask) {
            return Err(format!("the ways of the mask {mask:x} do not lie side by side"));
        }
        if mask & able.taken != 0 {
            return Err(format!(
                "the mask {mask:x} has ways of the last-level cache {domain} that another group has for itself"
            ));
        }
        Ok(mask)
    }

    /// As many ways as fit into a size.
    fn ways_within(&self, bytes: u64, domain: &str, able: &Domain) -> Result<u32, String> {
        let way = able.way_bytes.filter(|it| *it > 0).ok_or_else(|| {
            format!("the size of the last-level cache {domain} is not known: limit its ways instead of llc")
        })?;
        let most = u64::from(self.cbm_mask.count_ones());
        let ways = bytes / way;
        if ways < u64::from(self.min_cbm_bits) || ways > most {
            return Err(format!(
                "{bytes} bytes of the last-level cache are out of range: {} to {}, in steps of {way}",
                way * u64::from(self.min_cbm_bits),
                way * most
            ));
        }
        Ok(u32::try_from(ways).unwrap_or(u32::MAX))
    }

    /// The lowest ways side by side that are not taken.
    fn lowest(&self, ways: u32, taken: u64) -> Option<u64> {
        let block = 1_u64.checked_shl(ways).map_or(u64::MAX, |end| end - 1);
        let free = self.cbm_mask & !taken;
        (0..=64_u32.saturating_sub(ways))
            .filter_map(|at| block.checked_shl(at))
            .find(|mask| mask & !free == 0 && mask.count_ones() == ways)
    }
}

impl Bandwidth {
    fn fit(&self, percent: f64) -> Result<u32, String> {
        let (min, step) = (f64::from(self.min), f64::from(self.step));
        let is_step = ((percent - min) / step).fract() == 0.0 || percent == 100.0;
        if percent < min || percent > 100.0 || !is_step {
            return Err(format!(
                "a bandwidth of {percent} % is out of range: {min} % to 100 %, in steps of {step} %"
            ));
        }
        Ok(percent as u32)
    }
}

fn line(resource: &str, values: impl Iterator<Item = String>) -> String {
    format!("{resource}:{}\n", values.collect::<Vec<_>>().join(";"))
}

fn is_contiguous(mask: u64) -> bool {
    let shifted = mask >> mask.trailing_zeros().min(63);
    shifted & shifted.wrapping_add(1) == 0
}

/// A mask with or without `0x`.
pub(crate) fn hexadecimal(text: &str) -> Option<u64> {
    let text = text.trim();
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// The values of a resource by domain: `    L3:0=fffff;1=fffff`.
pub(crate) fn values<'a>(schemata: &'a str, resource: &str) -> Option<Vec<(&'a str, &'a str)>> {
    schemata.lines().find_map(|line| {
        let (name, values) = line.trim().split_once(':')?;
        let pairs = values.split(';').filter(|it| !it.trim().is_empty());
        let pair = |it: &'a str| it.split_once('=').map(|(id, value)| (id.trim(), value.trim()));
        (name == resource).then(|| pairs.map(pair).collect::<Option<Vec<_>>>()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn cache() -> Cache {
        let domain = |taken| Domain { way_bytes: Some(MIB), taken };
        Cache {
            resources: vec!["L3".into()],
            cbm_mask: 0x7ff,
            min_cbm_bits: 2,
            is_sparse: false,
            domains: [("0".into(), domain(0)), ("1".into(), domain(0b110))].into(),
        }
    }

    fn bandwidth() -> Bandwidth {
        Bandwidth { min: 10, step: 10, domains: vec!["0".into(), "1".into()] }
    }

    fn fit(wanted: &Wanted) -> Result<String, String> {
        wanted.fit(Some(&cache()), Some(&bandwidth())).map(|it| it.schemata)
    }

    #[test]
    fn limits_become_lines_within_what_the_machine_can_do() {
        let ways = |ways| Wanted { ways: Some(ways), ..Wanted::default() };
        assert_eq!(fit(&ways(2)).unwrap(), "L3:0=3;1=18\n");
        assert!(fit(&ways(9)).unwrap_err().contains("no 9 ways of the last-level cache 1"));
        assert!(fit(&ways(1)).unwrap_err().contains("it has 11, and a limit at least 2"));
        assert!(fit(&ways(12)).unwrap_err().contains("12 ways"));
        let size = |bytes| Wanted { llc_bytes: Some(bytes), ..Wanted::default() };
        let fitted = size(3 * MIB + 5).fit(Some(&cache()), None).unwrap();
        assert_eq!(fitted.schemata, "L3:0=7;1=38\n");
        assert_eq!(fitted.masks["0"], (7, Some(3 * MIB)));
        for wrong in [0, 2 * MIB - 1, 12 * MIB] {
            let sentence = fit(&size(wrong)).unwrap_err();
            assert!(sentence.contains("2097152 to 11534336, in steps of 1048576"), "{sentence}");
        }
        let whole = Wanted { ways: Some(64), ..Wanted::default() };
        let mut wide = cache();
        (wide.cbm_mask, wide.domains) = (u64::MAX, [("0".into(), Domain::default())].into());
        assert_eq!(whole.fit(Some(&wide), None).unwrap().schemata, "L3:0=ffffffffffffffff\n");
    }

    #[test]
    fn masks_are_checked() {
        let mask = |text: &str| fit(&Wanted { mask: Some(text.into()), ..Wanted::default() });
        assert_eq!(mask("0x18").unwrap(), "L3:0=18;1=18\n");
        for (text, words) in [
            ("f000", "has not: its mask is 7ff"),
            ("10", "has 1 ways, and a limit has at least 2"),
            ("0", "has 0 ways"),
            ("5", "do not lie side by side"),
            ("3", "cache 1 that another group has for itself"),
            ("x", "is no mask"),
        ] {
            let sentence = mask(text).unwrap_err();
            assert!(sentence.contains(words), "{text}: {sentence}");
        }
        let sparse = Cache { is_sparse: true, ..cache() };
        let wanted = Wanted { mask: Some("41".into()), ..Wanted::default() };
        assert!(wanted.fit(Some(&cache()), None).is_err());
        assert_eq!(wanted.fit(Some(&sparse), None).unwrap().schemata, "L3:0=41;1=41\n");
    }

    #[test]
    fn bandwidth_has_steps() {
        let wanted = |percent| Wanted { bandwidth_percent: Some(percent), ..Wanted::default() };
        assert_eq!(fit(&wanted(50.0)).unwrap(), "MB:0=50;1=50\n");
        assert_eq!(fit(&wanted(100.0)).unwrap(), "MB:0=100;1=100\n");
        for percent in [0.0, 5.0, 45.0, 12.5, 110.0, f64::NAN] {
            let sentence = fit(&wanted(percent)).unwrap_err();
            assert!(sentence.contains("10 % to 100 %, in steps of 10 %"), "{percent}: {sentence}");
        }
        let both = Wanted { ways: Some(2), ..wanted(50.0) };
        assert_eq!(fit(&both).unwrap(), "L3:0=3;1=18\nMB:0=50;1=50\n");
        assert!(both.fit(None, Some(&bandwidth())).unwrap_err().contains("no CAT"));
        assert!(wanted(50.0).fit(Some(&cache()), None).unwrap_err().contains("no MBA"));
        assert!(Wanted::default().check().is_err());
        assert!(
            Wanted { ways: Some(2), mask: Some("3".into()), ..Wanted::default() }.check().is_err()
        );
    }

    #[test]
    fn both_of_code_and_data_are_limited() {
        let mut cache = cache();
        cache.resources = vec!["L3DATA".into(), "L3CODE".into()];
        let wanted = Wanted { ways: Some(2), ..Wanted::default() };
        let schemata = wanted.fit(Some(&cache), None).unwrap().schemata;
        assert_eq!(schemata, "L3DATA:0=3;1=18\nL3CODE:0=3;1=18\n");
    }

    #[test]
    fn values_of_schemata_are_read_as_the_kernel_writes_them() {
        let text = "    MB:0=100;1= 50\n    L3:0=7ff;1=3\nL2:0\n";
        assert_eq!(values(text, "MB").unwrap(), [("0", "100"), ("1", "50")]);
        assert_eq!(values(text, "L3").unwrap(), [("0", "7ff"), ("1", "3")]);
        assert_eq!(values(text, "L2"), None);
        assert_eq!(values("", "L3"), None);
    }
}
