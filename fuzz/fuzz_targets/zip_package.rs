//! Deployment packages: whatever is unpacked stays in its folder.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/worker/src/store/folders.rs"]
mod folders;
#[path = "../../crates/worker/src/store/package.rs"]
mod package;

/// What the modules know of the rest of their crate, of which unpacking needs nothing.
mod instance {
    #[derive(Clone, Copy)]
    pub struct Runtime;

    impl Runtime {
        pub fn definition(self) -> Self {
            self
        }

        pub fn check_package(
            self,
            _: &dyn Fn(&str) -> bool,
            _: &str,
            _: &str,
        ) -> Result<(), String> {
            Ok(())
        }
    }
}

use libfuzzer_sys::fuzz_target;

fuzz_target!(|zip: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let _ = package::unpack(zip, &folder.path().join("code"));
    let names: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").flatten().collect();
    assert!(names.iter().all(|entry| entry.file_name() == "code"), "{names:?}");
});
