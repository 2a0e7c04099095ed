//! Layouts that the tests write, sound and hostile, read and unpacked.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression as Level;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};
use uncia_oci::layer::{Contents, Rules, unpack, verify};
use uncia_oci::layout::Layout;
use uncia_oci::{Digest, Image, ImageError, Selector};

const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

fn rules() -> Rules {
    let is_root = rustix::process::geteuid().is_root();
    Rules { group: is_root.then_some(990), is_root, max_entries: 1_000, max_bytes: 1 << 20 }
}

/// An entry: its name, type, content or target, and mode.
fn archive(entries: &[(&str, EntryType, &str, u32)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, content, mode) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_mtime(1_000_000_000);
        // As it stands, which the library would refuse to write.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        let data = if is_link { "" } else { content };
        if is_link {
            header.set_link_name_literal(content).unwrap();
        }
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn file<'a>(name: &'a str, content: &'a str) -> (&'a str, EntryType, &'a str, u32) {
    (name, EntryType::Regular, content, 0o640)
}

struct Written {
    folder: tempfile::TempDir,
    entries: Vec<Value>,
}

impl Written {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("blobs/sha256")).unwrap();
        fs::write(folder.path().join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
        let written = Self { folder, entries: Vec::new() };
        written.write_index();
        written
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.path().join("blobs/sha256").join(digest.hex())
    }

    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = Digest::of(bytes);
        fs::write(self.blob_path(&digest), bytes).unwrap();
        json!({"mediaType": media_type, "digest": digest.to_string(), "size": bytes.len()})
    }

    /// Adds an image of these layers: media type, archive, and the archive without compression.
    fn image(&mut self, tag: &str, layers: &[(&str, &[u8], &[u8])]) -> Value {
        let diff_ids: Vec<_> =
            layers.iter().map(|(_, _, plain)| Digest::of(plain).to_string()).collect();
        let config = json!({
            "architecture": uncia_oci::image::machine(), "os": "linux",
            "config": {"Entrypoint": ["/bin/x"], "Env": ["A=b"], "WorkingDir": "/w", "User": "x"},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config =
            self.blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
        let layers: Vec<_> = layers.iter().map(|(kind, bytes, _)| self.blob(kind, bytes)).collect();
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let mut manifest = self.blob(kind, manifest.to_string().as_bytes());
        manifest["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        self.entries.push(manifest.clone());
        self.write_index();
        manifest
    }

    fn write_index(&self) {
        let index = json!({"schemaVersion": 2, "manifests": self.entries});
        fs::write(self.path().join("index.json"), index.to_string()).unwrap();
    }

    fn open(&self) -> Layout {
        open(self.path()).unwrap()
    }
}

fn open(path: &Path) -> Result<Layout, ImageError> {
    Layout::open(fs::File::open(path).unwrap().into(), &path.display().to_string())
}

/// Unpacks an archive as a layer of its own; what it says, and the folder.
fn attempt(plain: &[u8], rules: &Rules) -> (Result<Contents, ImageError>, tempfile::TempDir) {
    let mut written = Written::new();
    written.image("a", &[(TAR, plain, plain)]);
    let layout = written.open();
    let image = Image::read(&layout, &Selector::Only).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let result = unpack(&layout, &image.layers[0], folder.path(), rules);
    (result, folder)
}

#[track_caller]
fn refuse(plain: &[u8], wanted: &str) {
    let (result, folder) = attempt(plain, &rules());
    let error = result.unwrap_err();
    assert!(!error.is_io(), "{error}");
    assert!(error.to_string().contains(wanted), "{error}");
    drop(folder);
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_layer_is_what_its_archive_says() {
    let long = "deep/".repeat(40) + "file";
    let mut plain = Builder::new(
        archive(&[
            ("./", EntryType::Directory, "", 0o700),
            ("bin/", EntryType::Directory, "", 0o755),
            ("bin/tool", EntryType::Regular, "tool", 0o4755),
            ("bin/same", EntryType::Link, "/bin/tool", 0o4755),
            ("bin/link", EntryType::Symlink, "/etc/passwd", 0o777),
            ("/absolute", EntryType::Regular, "x", 0o600),
            ("dev/null", EntryType::Char, "", 0o666),
            ("new/folder/file", EntryType::Regular, "", 0o444),
            ("twice", EntryType::Regular, "first", 0o644),
            ("twice", EntryType::Regular, "second", 0o644),
        ])[..]
            .to_vec(),
    );
    // The library writes long names as an extension; the blocks that end the first part go.
    let mut bytes = plain.get_ref().clone();
    bytes.truncate(bytes.len() - 1024);
    plain = Builder::new(bytes);
    let mut header = Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o600);
    plain.append_data(&mut header, &long, &b"long"[..]).unwrap();
    let (result, folder) = attempt(&plain.into_inner().unwrap(), &rules());
    let contents = result.unwrap();
    // Eleven entries, and folders that none of them names.
    assert_eq!(contents, Contents { entries: 11 + 3 + 40, bytes: 4 + 1 + 5 + 6 + 4 });
    let path = |name: &str| folder.path().join(name);
    assert_eq!(fs::read_to_string(path("bin/same")).unwrap(), "tool");
    assert_eq!(
        fs::metadata(path("bin/same")).unwrap().ino(),
        fs::metadata(path("bin/tool")).unwrap().ino()
    );
    // No set-user-id bit, and the group may what the owner may.
    assert_eq!((mode(&path("bin/tool")), mode(&path("absolute"))), (0o775, 0o660));
    assert_eq!(
        (mode(&path("bin")), mode(&path("new")), mode(&path("new/folder/file"))),
        (0o775, 0o775, 0o444)
    );
    assert_eq!(fs::read_link(path("bin/link")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(fs::metadata(path("bin/tool")).unwrap().mtime(), 1_000_000_000);
    assert_eq!(fs::read_to_string(path("twice")).unwrap(), "second");
    assert_eq!(fs::read_to_string(path(&long)).unwrap(), "long");
    assert!(path("dev").is_dir() && !path("dev/null").exists());
    if rules().group.is_some() {
        assert_eq!(fs::metadata(path("bin/tool")).unwrap().gid(), 990);
    }
}

#[test]
fn whiteouts_are_overlayfs_s() {
    let plain = archive(&[
        file("a/.wh.gone", ""),
        file("b/.wh..wh..opq", ""),
        file(".wh..wh.plnk", ""),
        file(".wh.again", ""),
        ("again", EntryType::Directory, "", 0o755),
        file("kept", "x"),
        file(".wh.kept", ""),
    ]);
    let (result, folder) = attempt(&plain, &rules());
    result.unwrap();
    let gone = fs::symlink_metadata(folder.path().join("a/gone")).unwrap();
    assert_eq!((gone.mode() & 0o170_000, gone.rdev()), (0o020_000, 0));
    let name = if rules().is_root { "trusted.overlay.opaque" } else { "user.overlay.opaque" };
    for hidden in ["b", "again"] {
        let mut value = [0; 1];
        let path = folder.path().join(hidden);
        assert_eq!(rustix::fs::getxattr(&path, name, &mut value), Ok(1), "{hidden}");
        assert!(path.is_dir());
    }
    assert_eq!(fs::read_to_string(folder.path().join("kept")).unwrap(), "x");
    assert!(!folder.path().join(".wh..wh.plnk").exists());
}

#[test]
fn nothing_leaves_the_folder() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("file");
    fs::write(&target, "mine").unwrap();
    let outer = outside.path().to_str().unwrap();
    refuse(&archive(&[file("../x", "")]), "would leave the layer's folder");
    refuse(&archive(&[file("a/../../x", "")]), "would leave the layer's folder");
    refuse(&archive(&[file("a/.wh...", "")]), "whiteout of nothing");
    for way in ["../../../..", "../../tmp/x/.."] {
        refuse(&archive(&[("x", EntryType::Link, way, 0o644)]), "would leave the layer's folder");
    }
    let target_text = target.to_str().unwrap();
    refuse(
        &archive(&[("x", EntryType::Link, target_text, 0o644)]),
        "which the layer does not have",
    );
    // A link on the way, to where there is nothing below the folder.
    for link in [outer, "../../../../../../../../../tmp"] {
        let plain = archive(&[("way", EntryType::Symlink, link, 0o777), file("way/file", "yours")]);
        refuse(&plain, "leads nowhere");
    }
    // And to where there is something: it is the folder's own.
    let plain = archive(&[
        ("etc/", EntryType::Directory, "", 0o755),
        ("way", EntryType::Symlink, "/../../etc", 0o777),
        file("way/file", "yours"),
        ("link", EntryType::Symlink, target_text, 0o777),
        file("link", "replaced"),
    ]);
    let (result, folder) = attempt(&plain, &rules());
    result.unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("etc/file")).unwrap(), "yours");
    assert_eq!(fs::read_to_string(folder.path().join("link")).unwrap(), "replaced");
    assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn too_much_is_refused_before_it_is_written() {
    let names: Vec<_> = (0..1_001).map(|number| number.to_string()).collect();
    let many: Vec<_> = names.iter().map(|name| file(name, "")).collect();
    let (result, folder) = attempt(&archive(&many), &rules());
    assert!(result.unwrap_err().to_string().contains("more than 1000 files"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let large = "x".repeat((1 << 20) + 1);
    let (result, folder) = attempt(&archive(&[file("large", &large)]), &rules());
    assert!(result.unwrap_err().to_string().contains("more than 1048576 bytes"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // A name that claims to have gigabytes.
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(1 << 33);
    header.set_cksum();
    refuse(header.as_bytes(), "too long");
    refuse(&archive(&[("sparse", EntryType::GNUSparse, "", 0o644)]), "sparse");
    refuse(&archive(&[file("x", "y")])[..700], "ends within");
    refuse(&[7; 2_000], "checksum");
    refuse(&archive(&[file("x", "y"), ("x/z", EntryType::Regular, "", 0o644)]), "and a file");
    refuse(&archive(&[("x", EntryType::Directory, "", 0o755), file("x", "")]), "both as a folder");
}

#[test]
fn folders_that_no_entry_names_count_too() {
    let deep = "d/".repeat(40);
    let names: Vec<_> = (0..30).map(|number| format!("{number}/{deep}file")).collect();
    let many: Vec<_> = names.iter().map(|name| file(name, "")).collect();
    refuse(&archive(&many), "more than 1000 files");
    let (result, _folder) = attempt(&archive(&many[..20]), &rules());
    assert_eq!(result.unwrap().entries, 20 * 42);
}

#[test]
fn folders_are_only_so_deep_however_they_are_named() {
    // What removes a folder, or walks through it, descends a step for each that lies in another.
    let (part, mut long) = ("d/".repeat(40), Vec::new());
    for number in 0..20 {
        let way = if number == 0 { String::new() } else { format!("{}/", number - 1) };
        long.push((format!("{way}{part}"), EntryType::Directory, String::new()));
        long.push((number.to_string(), EntryType::Symlink, format!("{way}{part}.")));
    }
    let entries: Vec<_> =
        long.iter().map(|(name, kind, to)| (&**name, *kind, &**to, 0o755)).collect();
    refuse(&archive(&entries), "folders deep");
    let (result, folder) = attempt(&archive(&entries[..20]), &rules());
    result.unwrap();
    assert!(folder.path().join("8").join(&part).is_dir());
}

#[test]
fn values_of_extended_headers_may_hold_anything() {
    let record = |key: &str, value: &[u8]| {
        let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
        let digits = (1..4).find(|digits| (rest.len() + digits).to_string().len() == *digits);
        [(rest.len() + digits.unwrap()).to_string().as_bytes(), &rest].concat()
    };
    let extended = |records: &[u8]| {
        let mut builder = Builder::new(Vec::new());
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_size(records.len() as u64);
        header.set_cksum();
        builder.append(&header, records).unwrap();
        let mut header = Header::new_ustar();
        header.set_path("short").unwrap();
        header.set_mode(0o644);
        header.set_size(1);
        header.set_cksum();
        builder.append(&header, &b"x"[..]).unwrap();
        builder.into_inner().unwrap()
    };
    // Capabilities of a file, as tar stores them: numbers, among them that of a new line.
    let capabilities = record("SCHILY.xattr.security.capability", b"\x01\0\0\x02\n\0\0\0\n=\0");
    let path = record("path", "two\nlines".as_bytes());
    let (result, folder) = attempt(&extended(&[capabilities, path].concat()), &rules());
    result.unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("two\nlines")).unwrap(), "x");
    for broken in [&b"x"[..], b"99 path=a\n", b"5 a=b\n", b"0 a=b\n", b"9 path=ab\n", b"7 path\n"] {
        refuse(&extended(broken), "an extended header is no list");
    }
}

#[test]
fn layers_are_checked_by_both_digests() {
    let plain = archive(&[file("x", "y")]);
    let mut encoder = GzEncoder::new(Vec::new(), Level::fast());
    encoder.write_all(&plain).unwrap();
    let packed = encoder.finish().unwrap();
    let other = archive(&[file("x", "z")]);
    let mut written = Written::new();
    written.image("sound", &[(GZIP, &packed, &plain)]);
    written.image("lies", &[(GZIP, &packed, &other)]);
    // Two frames, and between them one that says nothing of the layer.
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let frame = |part: &[u8]| ruzstd::encoding::compress_to_vec(part, level);
    let skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc";
    let frames = [&frame(&plain[..700]), &skipped[..], &frame(&plain[700..])].concat();
    written.image("frames", &[(ZSTD, &frames, &plain)]);
    let layout = written.open();
    let read = |tag: &str| Image::read(&layout, &Selector::Tag(tag.to_owned())).unwrap();
    let attempt = |tag: &str| {
        let folder = tempfile::tempdir().unwrap();
        unpack(&layout, &read(tag).layers[0], folder.path(), &rules())
    };
    assert_eq!(attempt("sound").unwrap().entries, 1);
    assert_eq!(attempt("frames").unwrap().entries, 1);
    let error = attempt("lies").unwrap_err().to_string();
    assert!(error.contains("is not what its digest says"), "{error}");
    let check = |tag: &str, packed: &[u8]| verify(packed, &read(tag).layers[0], &rules());
    check("sound", &packed).unwrap();
    check("frames", &frames).unwrap();
    let error = check("lies", &packed).unwrap_err().to_string();
    assert!(error.contains("is not what its digest says"), "{error}");
    check("sound", &packed[..packed.len() - 1]).unwrap_err();
    let blob = written.blob_path(&Digest::of(&packed));
    for (bytes, wanted) in [
        ([&packed[..], b"more"].concat(), "more bytes, and not"),
        (packed[..packed.len() - 1].to_vec(), "bytes, and not"),
        ([&packed[..40], &[0; 3], &packed[43..]].concat(), "is not what its digest says"),
    ] {
        fs::write(&blob, bytes).unwrap();
        let error = attempt("sound").unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    fs::remove_file(&blob).unwrap();
    assert!(matches!(attempt("sound"), Err(ImageError::Missing(_))));
}

#[test]
fn images_by_tag_by_digest_and_by_variant() {
    let plain = archive(&[file("x", "y")]);
    let mut written = Written::new();
    let first = written.image("first", &[(TAR, &plain, &plain)]);
    let layout = written.open();
    let image = Image::read(&layout, &Selector::Only).unwrap();
    assert_eq!(image.digest.to_string(), first["digest"]);
    assert_eq!(image.execution.entrypoint.as_deref(), Some(&["/bin/x".to_owned()][..]));
    assert_eq!(image.execution.working_dir.as_deref(), Some("/w"));
    written.image("second", &[(TAR, &plain, &plain), (TAR, &plain, &plain)]);
    let error = Image::read(&layout, &Selector::Only).unwrap_err().to_string();
    assert!(error.contains("first, second") && error.contains(":first"), "{error}");
    let error = Image::read(&layout, &Selector::Tag("third".into())).unwrap_err().to_string();
    assert!(error.contains("first, second"), "{error}");
    let digest = Digest::parse(first["digest"].as_str().unwrap()).unwrap();
    let by_digest = Image::read(&layout, &Selector::Digest(digest)).unwrap();
    assert_eq!(by_digest, image);

    // An index of variants.
    let mut fits = first.clone();
    fits["platform"] = json!({"os": "linux", "architecture": uncia_oci::image::machine()});
    let mut foreign = written.entries[1].clone();
    foreign["platform"] = json!({"os": "linux", "architecture": "riscv64"});
    let kind = "application/vnd.oci.image.index.v1+json";
    for (variants, wanted) in [(json!([foreign, fits]), None), (json!([foreign]), Some("riscv64"))]
    {
        let index = json!({"manifests": variants}).to_string();
        let mut entry = written.blob(kind, index.as_bytes());
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": "multi"});
        written.entries = vec![entry];
        written.write_index();
        match (Image::read(&layout, &Selector::Tag("multi".into())), wanted) {
            (Ok(found), None) => assert_eq!(found.digest, image.digest),
            (Err(error), Some(wanted)) => assert!(error.to_string().contains(wanted), "{error}"),
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_tar_file_of_a_layout_is_one() {
    let plain = archive(&[file("x", "y")]);
    let mut written = Written::new();
    written.image("a", &[(TAR, &plain, &plain)]);
    let path = written.path().with_extension("tar");
    let mut builder = Builder::new(fs::File::create(&path).unwrap());
    builder.append_dir_all(".", written.path()).unwrap();
    builder.finish().unwrap();
    let layout = open(&path).unwrap();
    let image = Image::read(&layout, &Selector::Only).unwrap();
    let folder = tempfile::tempdir().unwrap();
    unpack(&layout, &image.layers[0], folder.path(), &rules()).unwrap();
    let mut text = String::new();
    fs::File::open(folder.path().join("x")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "y");
    fs::remove_file(&path).unwrap();
}

#[test]
fn what_is_no_layout_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |wanted: &str| {
        let error = open(folder.path()).err().unwrap().to_string();
        assert!(error.contains(wanted), "{error}");
    };
    refused("has no file oci-layout");
    fs::write(folder.path().join("manifest.json"), "[]").unwrap();
    refused("docker save");
    // It may lie outside of what is allowed.
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("oci-layout")).unwrap();
    refused("cannot be read");
    fs::remove_file(folder.path().join("oci-layout")).unwrap();
    fs::write(folder.path().join("oci-layout"), r#"{"imageLayoutVersion": "2.0"}"#).unwrap();
    refused("version \"2.0\"");
    let text = folder.path().join("text");
    fs::write(&text, "not a tar file").unwrap();
    assert!(open(&text).err().unwrap().to_string().contains("neither a folder nor a tar file"));
}
