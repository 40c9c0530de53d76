//! `cargo xtask guest -- COMMAND ARGS…`: runs a command in a small virtual machine whose kernel has `openvswitch.ko`.
//!
//! The machine's kernel is Debian's, downloaded by apt and kept ([`kernel`]). Its root is the host's root
//! file system, mounted read-only below a layer in memory, so fresh builds run unchanged and everything that
//! the command writes is discarded. Output and exit status pass through. See docs/testing-guest.md.
//!
//! It starts no service of the host, adds no network device, and leaves nothing behind but its cache. Input
//! is not passed on: the command reads from `/dev/null`.

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

use crate::workspace::{absolute, target};

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Processors of the machine.
    pub(crate) cpus: u32,
    /// Memory of the machine in MiB.
    pub(crate) memory_mib: u32,
    /// A package or a version of a kernel.
    pub(crate) kernel: String,
    /// Folders that the command may change.
    pub(crate) write: Vec<PathBuf>,
    /// Time limit of the machine.
    pub(crate) timeout: Option<Duration>,
    /// Acceleration; `None` is the best that works.
    pub(crate) accel: Option<Accel>,
    /// Reports the progress of the start on stderr.
    pub(crate) verbose: bool,
    /// The command and its arguments.
    pub(crate) command: Vec<String>,
}

/// Acceleration of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accel {
    /// By the host's processor.
    Kvm,
    /// By translating its instructions.
    Tcg,
}

/// The newest kernel of Debian's release.
pub(crate) const KERNEL: &str = "linux-image-amd64";

/// Overrides the folder of the kernels, by default `guest` in the target folder.
const CACHE: &str = "SLUICE_GUEST_CACHE";

/// Exit status of a timeout, as in timeout(1).
const TIMED_OUT: u8 = 124;

/// Exit status when the machine fails, not the command.
pub(crate) const FAILED: u8 = 125;

impl Default for Options {
    fn default() -> Self {
        Options {
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

/// Parses the arguments after `guest`.
///
/// # Errors
/// If an option is unknown or has an invalid value, or the command is missing.
pub(crate) fn parse(args: &[String]) -> Result<Options, String> {
    let mut order = Options::default();
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

/// The reason why no machine can run here, if any.
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

/// Finds a program, also if the administrator's folders are not in the path.
fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Runs the command; its exit status.
///
/// # Errors
/// If the machine cannot be started, or ends before the command does.
pub(crate) fn run(root: &Path, order: &Options) -> Result<u8> {
    run_with(root, order, &mut std::io::stdout(), &mut std::io::stderr())
}

/// Sees to it that a kernel is in the cache.
///
/// # Errors
/// If it is not available or cannot be unpacked.
fn fetch(root: &Path, name: &str) -> Result<Kernel> {
    let cache = std::env::var_os(CACHE)
        .map_or_else(|| Ok(target(root)?.join("guest")), |dir| absolute(dir.as_ref()))?;
    kernel::prepare(&cache, name)
}

/// As [`run`], with other outputs.
///
/// # Errors
/// As [`run`].
fn run_with(
    root: &Path,
    order: &Options,
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
