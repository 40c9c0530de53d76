//! The guest's kernel: Debian's, downloaded by apt once and kept unpacked in the cache folder.
//!
//! `CACHE/PACKAGE/` has `vmlinux` (uncompressed, which boots much faster than the package's own image under
//! emulation), `lib/modules/RELEASE` with an index by depmod, and `release`. `CACHE/NAME.package` records the
//! package for a requested name: apt is not queried again until the folder is removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

use super::cpio::Archive;
use super::script;

/// A kernel ready to start.
#[derive(Debug)]
pub(super) struct Kernel {
    dir: PathBuf,
    /// Its release, as in `uname -r`.
    pub(super) release: String,
}

/// Modules needed before the host's files are mounted.
const BOOT_MODULES: [&str; 6] =
    ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "virtio_rng"];

/// Kept parts of the large module folders; all others are kept whole.
const KEPT: [(&str, &[&str]); 4] = [
    ("", &["arch", "block", "crypto", "drivers", "fs", "lib", "mm", "net", "virt"]),
    ("drivers", &["block", "char", "net", "ptp", "vhost", "virtio"]),
    ("drivers/net", &["bonding", "geneve", "macsec", "phy", "team", "vxlan", "wireguard"]),
    ("fs", &["9p", "configfs", "fscache", "fuse", "netfs", "nls", "overlayfs"]),
];

/// Whether `text` may be the name of a package or a version.
pub(super) fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b".+-~_".contains(&b);
    text.bytes().all(fits) && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// The kernel of a package or version, from the cache `dir` or by apt.
///
/// # Errors
/// If it is not available or cannot be unpacked.
pub(super) fn prepare(dir: &Path, wanted: &str) -> Result<Kernel> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let lock = fs::File::create(dir.join("lock")).context("cannot make a lock file")?;
    lock.lock().context("cannot lock the cache of kernels")?;
    let known = dir.join(format!("{wanted}.package"));
    if let Ok(package) = fs::read_to_string(&known)
        && let Some(kernel) = cached(&dir.join(package.trim()))
    {
        return Ok(kernel);
    }
    let package = match resolve(wanted) {
        Ok(package) => package,
        Err(why) => {
            refresh_lists();
            resolve(wanted).map_err(|_| why)?
        }
    };
    let place = dir.join(&package);
    let kernel = match cached(&place) {
        Some(kernel) => kernel,
        None => unpack(dir, &place, &package)?,
    };
    fs::write(&known, &package).context("cannot write to the cache")?;
    Ok(kernel)
}

fn cached(dir: &Path) -> Option<Kernel> {
    let release = fs::read_to_string(dir.join("release")).ok()?;
    Some(Kernel { dir: dir.to_owned(), release: release.trim().to_owned() })
}

/// Downloads a package and creates its folder.
fn unpack(dir: &Path, place: &Path, package: &str) -> Result<Kernel> {
    eprintln!("xtask: guest: fetching {package} (once; kept in {})", dir.display());
    let work = dir.join("new");
    let fresh = |path: &Path| match path.exists() {
        true => fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display())),
        false => Ok(()),
    };
    fresh(&work)?;
    fs::create_dir(&work).context("cannot make a folder in the cache")?;
    if let Err(why) = download(&work, package) {
        refresh_lists();
        download(&work, package).map_err(|_| why)?;
    }
    let deb = only(&work, |name| name.ends_with(".deb")).context("apt-get left no package")?;
    run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&work))?;
    fs::remove_file(&deb).context("cannot remove the package")?;
    let usr = work.join("usr/lib/modules");
    if usr.exists() {
        // Newer packages have their files below /usr.
        fs::create_dir_all(work.join("lib")).context("cannot make a folder in the cache")?;
        fs::rename(usr, work.join("lib/modules")).context("cannot move the modules")?;
    }
    let modules = only(&work.join("lib/modules"), |_| true).context("the package has no modules")?;
    let release = modules.file_name().unwrap_or_default().to_string_lossy().into_owned();
    prune(&modules.join("kernel"))?;
    run(Command::new(tool("depmod")).arg("-b").arg(&work).arg(&release))?;
    let image = only(&work.join("boot"), |name| name.starts_with("vmlinuz-")).context("no kernel in it")?;
    let image = fs::read(image).context("cannot read the kernel")?;
    fs::write(work.join("vmlinux"), decompress(&work, payload(&image)?)?)
        .context("cannot write the kernel")?;
    for rest in ["boot", "usr"] {
        fresh(&work.join(rest))?;
    }
    fs::write(work.join("release"), &release).context("cannot write to the cache")?;
    fresh(place)?;
    fs::rename(&work, place).context("cannot move what was unpacked into its place")?;
    cached(place).context("the cache is gone")
}

/// Removes hardware drivers that a guest never needs: most of a package.
fn prune(kernel: &Path) -> Result<()> {
    for (folder, kept) in KEPT {
        let Ok(entries) = fs::read_dir(kernel.join(folder)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if entry.path().is_dir() && !kept.iter().any(|k| name == *k) {
                fs::remove_dir_all(entry.path()).context("cannot remove modules")?;
            }
        }
    }
    Ok(())
}

/// The only entry of a folder with a matching name.
fn only(dir: &Path, fits: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?.flatten().map(|e| e.path());
    entries.into_iter().find(|p| p.file_name().is_some_and(|n| fits(&n.to_string_lossy())))
}

/// The kernel package for a package name (which may only depend on it) or a version.
fn resolve(wanted: &str) -> Result<String> {
    let names = run(Command::new("apt-cache").args(["pkgnames", "linux-image-"]))?;
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    let names: Vec<&str> = names.lines().collect();
    let Some(mut package) = choose(wanted, &names) else {
        bail!("apt knows no kernel `{wanted}`; it offers: {}", offered(&names).join(" "));
    };
    // At most: a name for the newest, a name for the newest of a series, the kernel.
    for _ in 0..3 {
        let listed = run(Command::new("apt-cache").args(["depends", "--important", &package]))?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        match listed.lines().find_map(|l| l.trim().strip_prefix("Depends: linux-image-")) {
            Some(next) => package = format!("linux-image-{next}"),
            None => return Ok(package),
        }
    }
    bail!("`{wanted}` leads from package to package and to no kernel")
}

/// The package for `wanted`: itself, that of this version, or the newest whose version has this prefix.
pub(super) fn choose(wanted: &str, names: &[&str]) -> Option<String> {
    let exact = [wanted.to_owned(), format!("linux-image-{wanted}-amd64")];
    if let Some(name) = exact.iter().find(|e| names.contains(&e.as_str())) {
        return Some(name.clone());
    }
    let begins =
        |version: &str| version.strip_prefix(wanted).is_some_and(|rest| rest.starts_with(['.', '-', '+']));
    offered(names).into_iter().rev().find(|v| begins(v)).map(|v| format!("linux-image-{v}-amd64"))
}

/// Versions usable by a guest among package names, oldest first.
fn offered(names: &[&str]) -> Vec<String> {
    let version = |name: &&str| {
        let version = name.strip_prefix("linux-image-")?.strip_suffix("-amd64")?;
        let plain = version.starts_with(|c: char| c.is_ascii_digit());
        // These lack 9p, or are other kernels altogether.
        (plain && !version.ends_with("-cloud") && !version.ends_with("-rt")).then(|| version.to_owned())
    };
    let mut versions: Vec<String> = names.iter().filter_map(version).collect();
    versions.sort_by_key(|v| {
        v.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect::<Vec<u64>>()
    });
    versions
}

fn download(into: &Path, package: &str) -> Result<Output> {
    // As root apt would download as a user without write access here, and warn.
    run(Command::new("apt-get")
        .args(["-q", "-o", "APT::Sandbox::User=root", "download", package])
        .current_dir(into))
}

/// Updates the package lists, which needs root; after a failure, the next step reports the reason.
fn refresh_lists() {
    let _unheeded = run(Command::new("apt-get").args(["-q", "-o", "DPkg::Lock::Timeout=120", "update"]));
}

/// The compressed kernel within a boot image (Documentation/x86/boot.rst of the kernel: `setup_sects`,
/// `payload_offset`, `payload_length`), without the trailing length.
pub(super) fn payload(image: &[u8]) -> Result<&[u8]> {
    let word = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    ensure!(image.get(0x202..0x206) == Some(b"HdrS"), "the kernel is no boot image");
    let sectors = match image[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let part = || {
        let start = ((sectors + 1) * 512).checked_add(word(0x248)?)?;
        image.get(start..start.checked_add(word(0x24c)?.checked_sub(4)?)?)
    };
    part().context("the kernel's boot image is cut short")
}

/// Decompresses a kernel.
fn decompress(work: &Path, packed: &[u8]) -> Result<Vec<u8>> {
    let program: &[&str] = match packed {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => &["xz", "-dc", "--single-stream"],
        [0x28, 0xb5, 0x2f, 0xfd, ..] => &["zstd", "-dc"],
        [0x1f, 0x8b, ..] => &["gzip", "-dc"],
        _ => bail!("the kernel is compressed in a way that is not known here"),
    };
    let file = work.join("payload");
    fs::write(&file, packed).context("cannot write to the cache")?;
    let out = run(Command::new(program[0])
        .args(&program[1..])
        .stdin(fs::File::open(&file).context("cannot read the cache")?));
    fs::remove_file(&file).context("cannot remove a file in the cache")?;
    let kernel = out?.stdout;
    ensure!(kernel.starts_with(b"\x7fELF"), "what the kernel's image holds is no kernel");
    Ok(kernel)
}

/// Finds an administrator's program, also if its folder is not in the path.
fn tool(name: &str) -> PathBuf {
    super::which(name).unwrap_or_else(|| name.into())
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Result<Output> {
    let out = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(out.status.success(), "{command:?} failed: {}", said.trim());
    Ok(out)
}

impl Kernel {
    /// The image to start.
    pub(super) fn image(&self) -> PathBuf {
        self.dir.join("vmlinux")
    }

    /// A cache file for a persistent note.
    pub(super) fn note(&self, name: &str) -> PathBuf {
        self.dir.with_file_name(name)
    }

    /// The folder of its modules.
    pub(super) fn modules(&self) -> PathBuf {
        self.dir.join("lib/modules").join(&self.release)
    }

    /// The first root of a guest that does `job`.
    ///
    /// # Errors
    /// If a module cannot be found or read, or there is no busybox.
    pub(super) fn first_root(&self, job: &script::Job, mark: &str) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        for folder in ["bin", "modules", "job"] {
            archive.folder(folder);
        }
        let busybox = fs::read(tool("busybox")).context("cannot read busybox")?;
        archive.file("bin/busybox", &busybox);
        for (number, module) in self.boot_modules()?.iter().enumerate() {
            let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let content = match name.strip_suffix(".xz") {
                None => fs::read(module).with_context(|| format!("cannot read {}", module.display()))?,
                Some(_) => run(Command::new("xz").arg("-dc").arg(module))?.stdout,
            };
            let name = name.trim_end_matches(".xz");
            archive.file(&format!("modules/{number:02}-{name}"), &content);
        }
        archive.file("job/vars", job.vars(mark).as_bytes());
        archive.file("job/command", job.script().as_bytes());
        archive.file("job/main", script::MAIN.as_bytes());
        archive.file("init", script::INIT.as_bytes());
        Ok(archive.finish())
    }

    /// The files of [`BOOT_MODULES`] and their dependencies, in load order.
    fn boot_modules(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for module in BOOT_MODULES {
            let out = run(Command::new(tool("modprobe"))
                .args(["-C", "/dev/null", "--show-depends", "-S", &self.release, "-d"])
                .arg(&self.dir)
                .arg(module))?;
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            for file in text.lines().filter_map(|l| l.strip_prefix("insmod ")) {
                let file = PathBuf::from(file.trim());
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        Ok(files)
    }
}
