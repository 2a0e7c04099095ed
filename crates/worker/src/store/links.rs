//! Symbolic links of packages: each must stay within the package, whatever other links it passes.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Links that one may pass before it counts as one that leads nowhere, as for Linux.
const MAX_LINKS: usize = 40;

/// Whether the link at `link` leads out of the folder that holds all of `links`, or in a circle. Paths are relative to that
/// folder; `links` has the target of each link.
pub(super) fn escapes(link: &Path, links: &HashMap<PathBuf, PathBuf>) -> bool {
    let mut passed = 0;
    let mut rest = components(link);
    let mut reached = PathBuf::new();
    while let Some(part) = rest.pop() {
        if part == ".." {
            if !reached.pop() {
                return true;
            }
            continue;
        }
        reached.push(part);
        let Some(target) = links.get(&reached) else { continue };
        passed += 1;
        if passed > MAX_LINKS || !target.is_relative() {
            return true;
        }
        reached.pop();
        rest.extend(components(target));
    }
    false
}

/// The parts of a relative path, the first one last.
fn components(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev().filter(|part| !matches!(part, Component::CurDir));
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(links: &[(&str, &str)]) -> Vec<bool> {
        let map = links.iter().map(|(link, target)| (link.into(), target.into())).collect();
        links.iter().map(|(link, _)| escapes(Path::new(link), &map)).collect()
    }

    #[test]
    fn links_within_the_package_are_fine() {
        let links = [
            ("lib/a.so", "a.so.1"),
            ("lib/a.so.1", "./../real/a.so.1.2"),
            ("top", "."),
            ("d/x", ".."),
        ];
        assert_eq!(check(&links), [false; 4]);
    }

    #[test]
    fn links_that_lead_out_are_found_however_they_do_it() {
        for target in ["/etc/passwd", "..", "../x", "a/../../x", "../d/../../x"] {
            assert_eq!(check(&[("l", target)]), [true], "{target}");
        }
        // What it says leads to the top; what it passes is less deep than its name.
        let links = [("p/q/b", "../.."), ("c", "p/q/b/../..")];
        assert_eq!(check(&links), [false, true]);
        assert_eq!(check(&[("a", "b"), ("b", "a"), ("c", "c")]), [true; 3]);
        assert_eq!(check(&[("deep/a", "../b"), ("b", "..")]), [true; 2]);
    }
}
