//! Deployment packages: whatever is unpacked stays in its folder.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/worker/src/store/package.rs"]
mod package;

/// What the module knows of the rest of its crate.
mod instance {
    #[derive(PartialEq)]
    pub enum Runtime {
        Python,
        Node,
        Provided,
    }
}

use libfuzzer_sys::fuzz_target;

fuzz_target!(|zip: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let _ = package::unpack(zip, &folder.path().join("code"));
    let names: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").flatten().collect();
    assert!(names.iter().all(|entry| entry.file_name() == "code"), "{names:?}");
});
