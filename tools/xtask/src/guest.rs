//! `cargo xtask guest -- COMMAND ARGS…`: runs a command in a small virtual machine whose kernel has `openvswitch.ko`.
//!
//! The machine's kernel is Debian's, fetched by apt and kept ([`kernel`]); its root is the host's root file system, mounted
//! read-only under a layer of memory, so that what was just built runs unchanged and what the command writes vanishes with it.
//! Output and exit status pass through. See docs/testing-guest.md.
//!
//! It starts no service of the host, adds no network device, and leaves nothing behind but its cache. It does not pass input
//! on: the command reads from `/dev/null`.

mod cpio;
mod kernel;
mod machine;
mod script;
pub(crate) mod stage;
mod stream;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use kernel::Kernel;

/// What is asked for on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Processors of the machine.
    pub(crate) cpus: u32,
    /// Memory of the machine in MiB.
    pub(crate) memory_mib: u32,
    /// A package or a version of a kernel.
    pub(crate) kernel: String,
    /// Folders that the command may change.
    pub(crate) write: Vec<PathBuf>,
    /// How long the machine may run.
    pub(crate) timeout: Option<Duration>,
    /// How the machine's processor is made; none stands for the best that works.
    pub(crate) accel: Option<Accel>,
    /// Says on stderr how the start goes.
    pub(crate) verbose: bool,
    /// The command and its arguments.
    pub(crate) command: Vec<String>,
}

/// How the machine's processor is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accel {
    /// By the host's processor.
    Kvm,
    /// By translating its instructions.
    Tcg,
}

/// The newest kernel of Debian's release.
pub(crate) const KERNEL: &str = "linux-image-amd64";

/// Names the folder of the kernels, if it shall not be `guest` in the target folder.
const CACHE: &str = "SLUICE_GUEST_CACHE";

/// Exit status when the time is up, as timeout(1) has it.
const TIMED_OUT: u8 = 124;

/// Exit status when the machine fails, not the command.
pub(crate) const FAILED: u8 = 125;

impl Default for Order {
    fn default() -> Self {
        Order {
            cpus: 2,
            memory_mib: 1024,
            kernel: KERNEL.to_owned(),
            write: Vec::new(),
            timeout: None,
            accel: None,
            verbose: false,
            command: Vec::new(),
        }
    }
}

/// Reads the arguments behind `guest`.
///
/// # Errors
/// When an option is unknown or has a bad value, or the command is missing.
pub(crate) fn parse(args: &[String]) -> Result<Order, String> {
    let mut order = Order::default();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            order.command = words.cloned().collect();
            break;
        }
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        if name == "--verbose" && inline.is_none() {
            order.verbose = true;
            continue;
        }
        let value = inline.or_else(|| words.next().cloned()).ok_or_else(|| format!("`{name}` has no value"));
        match name {
            "--cpus" => order.cpus = number(name, &value?, 1, 64)?,
            "--memory" => order.memory_mib = number(name, &value?, 256, 1 << 20)?,
            "--kernel" => order.kernel = value?,
            "--write" => order.write.push(PathBuf::from(value?)),
            "--timeout" => {
                order.timeout = Some(Duration::from_secs(number(name, &value?, 1, 1 << 30)?.into()));
            }
            "--accel" => {
                order.accel = Some(match value?.as_str() {
                    "kvm" => Accel::Kvm,
                    "tcg" => Accel::Tcg,
                    other => return Err(format!("`--accel` is `kvm` or `tcg`, not `{other}`")),
                });
            }
            _ => return Err(format!("unknown option `{word}` of `guest` (the command stands behind `--`)")),
        }
    }
    if order.command.is_empty() {
        return Err("`guest` takes a command behind `--`".to_owned());
    }
    if !kernel::is_name(&order.kernel) {
        return Err(format!("`{}` is neither a package nor a version of a kernel", order.kernel));
    }
    Ok(order)
}

fn number(name: &str, value: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = value.parse().ok().filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| format!("`{name}` takes a number from {least} to {most}, not `{value}`"))
}

/// Why no machine can run here, if so.
pub(crate) fn lacks() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some("its kernel is for x86-64".to_owned());
    }
    let missing: Vec<&str> = PROGRAMS.iter().filter(|(p, _)| which(p).is_none()).map(|(_, p)| *p).collect();
    (!missing.is_empty()).then(|| format!("not installed: {} (scripts/setup.sh check)", missing.join(" ")))
}

/// Programs and the packages that hold them.
const PROGRAMS: &[(&str, &str)] = &[
    (machine::QEMU, "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("modprobe", "kmod"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
    ("apt-get", "apt"),
];

/// Where a program is, also when the folders of the administrator's are not on the path.
fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Runs the command; its exit status.
///
/// # Errors
/// When the machine cannot be started, or ends before the command does.
pub(crate) fn run(root: &Path, order: &Order) -> Result<u8> {
    run_with(root, order, &mut std::io::stdout(), &mut std::io::stderr())
}

/// Sees to it that a kernel is in the cache.
///
/// # Errors
/// When it cannot be had or unpacked.
fn fetch(root: &Path, name: &str) -> Result<Kernel> {
    let cache = std::env::var_os(CACHE)
        .map_or_else(|| Ok(target(root)?.join("guest")), |dir| absolute(dir.as_ref()))?;
    kernel::prepare(&cache, name)
}

/// The folder for what is built.
fn target(root: &Path) -> Result<PathBuf> {
    absolute(&std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("no folder: `{}`", path.display()))
}

/// As [`run`], with other ends for the output.
///
/// # Errors
/// As [`run`].
fn run_with(
    root: &Path,
    order: &Order,
    out: &mut (dyn std::io::Write + Send),
    err: &mut (dyn std::io::Write + Send),
) -> Result<u8> {
    if let Some(reason) = lacks() {
        bail!("no machine can run here: {reason}");
    }
    let cwd = std::env::current_dir().context("the working directory is gone")?;
    let kernel = fetch(root, &order.kernel)?;
    let mut write = Vec::new();
    for dir in &order.write {
        let dir = std::fs::canonicalize(dir).with_context(|| format!("`--write {}`", dir.display()))?;
        ensure!(dir.is_dir(), "`--write {}` is no folder", dir.display());
        ensure!(dir != Path::new("/"), "the root itself stays read-only: name a folder below it");
        write.push(dir);
    }
    let job = script::Job {
        command: order.command.clone(),
        env: std::env::vars().filter(|(name, _)| script::is_kept(name)).collect(),
        seen: script::hidden(&[&cwd, &target(root)?]),
        cwd,
        write,
        modules: kernel.modules(),
        release: kernel.release.clone(),
    };
    let ended = machine::run(&kernel, &job, order, out, err)?;
    Ok(match ended {
        machine::End::Status(status) => status,
        machine::End::TimedOut(limit) => {
            eprintln!("xtask: guest: the time is up ({} s)", limit.as_secs());
            TIMED_OUT
        }
    })
}

#[cfg(test)]
mod tests;
