//! The machine: QEMU, started, heard out and ended.
//!
//! Output comes through three ports, each a socket in a folder of this run: `out` and `err` are the
//! command's, `ctl` reports the guest's progress. The machine never outlives this process: dropping a
//! [`Machine`] kills it, and so does the kernel if this process dies (`setpriv --pdeathsig`).

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::kernel::Kernel;
use super::script::Job;
use super::stream::{self, Stream};
use super::{Accel, Options};

/// The program.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Maximum time for QEMU to start.
const BEGIN: Duration = Duration::from_secs(30);

/// Maximum boot time with KVM: beyond, the guest hangs.
const UP_KVM: Duration = Duration::from_secs(8);

/// Maximum boot time under emulation, on a busy machine.
const UP_TCG: Duration = Duration::from_secs(120);

/// Lines of the console that are shown when a machine fails.
const CONSOLE_LINES: usize = 40;

/// The kernel's command line. A panic ends the machine; protections that slow emulation without benefit here
/// are off.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr init_on_alloc=0 \
    random.trust_cpu=on nowatchdog rcupdate.rcu_cpu_stall_suppress=1 cryptomgr.notests audit=0 apparmor=0";

/// The end of a machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The command ended with this status.
    Status(u8),
    /// It took longer than permitted.
    TimedOut(Duration),
}

/// Receives output.
type Sink<'a> = &'a mut (dyn Write + Send);

/// Runs `job` in a machine.
///
/// # Errors
/// If no machine starts, or it ends before the command does; the error includes the console's last lines.
pub(super) fn run(kernel: &Kernel, job: &Job, order: &Options, out: Sink<'_>, err: Sink<'_>) -> Result<End> {
    let start = Instant::now();
    let run = Run::new()?;
    let mark = stream::mark(&run.token);
    let root = kernel.first_root(job, mark.trim_start_matches('\0'))?;
    fs::write(run.file("root"), root).context("cannot write the first root")?;
    let say = |what: &str| {
        if order.verbose {
            eprintln!("xtask: guest: {what} after {:.1} s", start.elapsed().as_secs_f64());
        }
    };
    let verdict = KvmVerdict::of(kernel);
    if order.accel == Some(Accel::Kvm) || (order.accel.is_none() && verdict.is_open()) {
        match Machine::start(&run, kernel, job, order, Accel::Kvm) {
            Ok(machine) => {
                say("up (KVM)");
                return machine.serve(&run, order, out, err, &say);
            }
            Err(why) if order.accel.is_some() => return Err(why),
            Err(_) => {
                verdict.note();
                say("KVM does not work here: on without it");
            }
        }
    }
    let machine = Machine::start(&run, kernel, job, order, Accel::Tcg)?;
    say("up (TCG)");
    machine.serve(&run, order, out, err, &say)
}

/// Whether to try KVM: it may be present but broken, which takes seconds to detect, so the result is recorded
/// until the next boot of the host.
struct KvmVerdict {
    note: PathBuf,
    boot: String,
}

impl KvmVerdict {
    fn of(kernel: &Kernel) -> KvmVerdict {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        KvmVerdict { note: kernel.note("kvm-fails"), boot }
    }

    fn is_open(&self) -> bool {
        let there = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
        there && fs::read_to_string(&self.note).ok().is_none_or(|noted| noted != self.boot)
    }

    fn note(&self) {
        // Without a record it is tried again.
        let _unheeded = fs::write(&self.note, &self.boot);
    }
}

/// The folder of one run, removed with it, and the token of its marks.
struct Run {
    dir: PathBuf,
    token: String,
}

impl Run {
    fn new() -> Result<Run> {
        let mut random = [0_u8; 16];
        let source = fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut random));
        source.context("no random numbers")?;
        let token: String = random.iter().map(|b| format!("{b:02x}")).collect();
        let dir = std::env::temp_dir().join(format!("sl-{}-guest-{}", std::process::id(), &token[..6]));
        sweep(&std::env::temp_dir());
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Run { dir, token })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The last lines of the console and of QEMU.
    fn last_lines(&self) -> String {
        let mut text = String::new();
        for name in ["console", "qemu"] {
            let bytes = fs::read(self.file(name)).unwrap_or_default();
            let said = String::from_utf8_lossy(&bytes).replace('\r', "");
            let lines: Vec<&str> = said.lines().filter(|l| !l.trim().is_empty()).collect();
            for line in &lines[lines.len().saturating_sub(CONSOLE_LINES)..] {
                text += &format!("\n  {name}: {line}");
            }
        }
        if text.is_empty() { "\n  (nothing on the console)".to_owned() } else { text }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _unheeded = fs::remove_dir_all(&self.dir);
    }
}

/// Removes the folders of runs that were killed.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("sl-").and_then(|n| n.split_once("-guest-")).map(|(pid, _)| pid);
        let pid = owner.filter(|pid| pid.parse::<u32>().is_ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _unheeded = fs::remove_dir_all(entry.path());
        }
    }
}

/// A machine with a running kernel.
struct Machine {
    child: Child,
    ctl: UnixStream,
    out: UnixStream,
    err: UnixStream,
}

/// Events from the reader threads.
enum Event {
    /// An output's mark.
    Status(u8),
    /// A line of `ctl`.
    Line(String),
    /// An output that ended without its mark.
    Lost,
}

impl Machine {
    /// Starts one and waits until its first process speaks.
    fn start(run: &Run, kernel: &Kernel, job: &Job, order: &Options, accel: Accel) -> Result<Machine> {
        let mut listeners = Vec::new();
        for port in ["ctl", "out", "err"] {
            let path = run.file(port);
            // An earlier attempt may have left it.
            let _absent = fs::remove_file(&path);
            let listener = UnixListener::bind(&path).with_context(|| format!("socket {}", path.display()))?;
            listener.set_nonblocking(true).context("socket")?;
            listeners.push(listener);
        }
        let said = fs::File::create(run.file("qemu")).context("cannot write to the folder of the run")?;
        let mut command = dying_with_us();
        command.args(arguments(run, kernel, job, order, accel));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = command.spawn().with_context(|| format!("cannot run {QEMU}"))?;
        let mut child = Reaper(Some(child));
        let mut ports = Vec::new();
        for listener in &listeners {
            ports.push(
                accept(listener, &mut child).with_context(|| format!("{QEMU} ends{}", run.last_lines()))?,
            );
        }
        let [mut ctl, out, err]: [UnixStream; 3] =
            ports.try_into().map_err(|_| anyhow::anyhow!("there are three ports"))?;
        let limit = if accel == Accel::Kvm { UP_KVM } else { UP_TCG };
        let limit = order.timeout.map_or(limit, |timeout| limit.min(timeout));
        ctl.set_read_timeout(Some(limit)).context("socket")?;
        let mut word = [0; 3];
        ctl.read_exact(&mut word).ok().filter(|()| &word == b"up\n").with_context(|| {
            format!("the guest did not come up (it had {} s){}", limit.as_secs(), run.last_lines())
        })?;
        ctl.set_read_timeout(None).context("socket")?;
        let child = child.0.take().context("there is a process")?;
        Ok(Machine { child, ctl, out, err })
    }

    /// Forwards the outputs until both have ended.
    fn serve(
        mut self,
        run: &Run,
        order: &Options,
        out: Sink<'_>,
        err: Sink<'_>,
        say: &dyn Fn(&str),
    ) -> Result<End> {
        let (events, heard) = channel();
        let (first, clone) = (events.clone(), |s: &UnixStream| s.try_clone().context("socket"));
        let (ctl, from_out, from_err) = (clone(&self.ctl)?, clone(&self.out)?, clone(&self.err)?);
        let deadline = order.timeout.map(|limit| (limit, Instant::now() + limit));
        std::thread::scope(|scope| {
            scope.spawn(|| listen(ctl, events));
            let second = first.clone();
            scope.spawn(|| forward(from_out, out, &run.token, first));
            scope.spawn(|| forward(from_err, err, &run.token, second));
            let mut marks = 0;
            let end = loop {
                let limit =
                    deadline.map_or(Duration::MAX, |(_, at)| at.saturating_duration_since(Instant::now()));
                match heard.recv_timeout(limit) {
                    Ok(Event::Line(line)) => say(&line),
                    Ok(Event::Status(status)) => {
                        marks += 1;
                        if marks == 2 {
                            break Ok(End::Status(status));
                        }
                    }
                    Ok(Event::Lost) | Err(RecvTimeoutError::Disconnected) => break Err(()),
                    Err(RecvTimeoutError::Timeout) => {
                        break Ok(End::TimedOut(deadline.map_or(limit, |(limit, _)| limit)));
                    }
                }
            };
            say("ended");
            // This closes the ports, and so ends the threads.
            self.end();
            end
        })
        .or_else(|()| bail!("the guest ended before its command did{}", run.last_lines()))
    }

    fn end(&mut self) {
        let _ended_already = self.child.kill();
        let _unheeded = self.child.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills its process on drop, unless taken out.
struct Reaper(Option<Child>);

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ended_already = child.kill();
            let _unheeded = child.wait();
        }
    }
}

/// QEMU, to be killed when this process dies. Limits inside the machine pass in real time, so it goes ahead of
/// the processes beside it: its session is a scheduling group of its own (`sched_autogroup`), and its niceness
/// counts where there are no such groups. Without the privilege the niceness stays.
fn dying_with_us() -> Command {
    let wrappers: [(&str, &[&str]); 3] =
        [("setsid", &[]), ("setpriv", &["--pdeathsig", "KILL", "--"]), ("nice", &["-n", "-5"])];
    let mut words: Vec<OsString> = Vec::new();
    for (program, args) in wrappers {
        if let Some(path) = super::which(program) {
            words.push(path.into());
            words.extend(args.iter().map(OsString::from));
        }
    }
    words.push(super::which(QEMU).unwrap_or_else(|| QEMU.into()).into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// QEMU's end of a port.
fn accept(listener: &UnixListener, child: &mut Reaper) -> Result<UnixStream> {
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).context("socket")?;
                return Ok(stream);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e).context("socket"),
        }
        let ended = child.0.as_mut().map_or(Ok(None), Child::try_wait).context("cannot wait for it")?;
        if let Some(status) = ended {
            bail!("it ended with {status}");
        }
        ensure!(start.elapsed() < BEGIN, "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// QEMU's arguments.
fn arguments(run: &Run, kernel: &Kernel, job: &Job, order: &Options, accel: Accel) -> Vec<String> {
    let path = |path: &Path| path.to_string_lossy().replace(',', ",,");
    let fixed = "-nodefaults -no-user-config -display none -no-reboot -machine q35 -device virtio-rng-pci \
        -device virtio-serial-pci";
    let mut args: Vec<String> = fixed.split_whitespace().map(str::to_owned).collect();
    let mut add = |name: &str, value: String| args.extend([name.to_owned(), value]);
    // An emulated machine that waits for the host's processors while it starts measures a wrong frequency of the TSC.
    let (how, processor, clock) = match accel {
        Accel::Kvm => ("kvm", "host", "tsc=reliable"),
        Accel::Tcg => ("tcg,thread=multi", "max,cx16=off", "tsc=unstable clocksource=hpet"),
    };
    add("-accel", how.to_owned());
    add("-cpu", processor.to_owned());
    add("-smp", order.cpus.to_string());
    add("-m", order.memory_mib.to_string());
    add("-kernel", kernel.image().to_string_lossy().into_owned());
    add("-initrd", run.file("root").to_string_lossy().into_owned());
    add("-append", format!("{COMMAND_LINE} {clock}"));
    add("-chardev", format!("file,id=console,path={}", path(&run.file("console"))));
    add("-serial", "chardev:console".to_owned());
    for port in ["ctl", "out", "err"] {
        add("-chardev", format!("socket,id={port},path={}", path(&run.file(port))));
        add("-device", format!("virtserialport,chardev={port},name={port}"));
    }
    let share = "security_model=none,multidevs=remap";
    add("-virtfs", format!("local,path=/,mount_tag=hostroot,readonly=on,{share}"));
    for (number, dir) in job.write.iter().enumerate() {
        add("-virtfs", format!("local,path={},mount_tag=write{number},{share}", path(dir)));
    }
    args
}

/// Reads the lines of `ctl`.
fn listen(from: UnixStream, events: Sender<Event>) {
    use std::io::{BufRead, BufReader};
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        if events.send(Event::Line(line)).is_err() {
            return;
        }
    }
}

/// Passes an output on up to its mark.
fn forward(mut from: UnixStream, to: Sink<'_>, token: &str, events: Sender<Event>) {
    let mut stream = Stream::new(token);
    let mut bytes = vec![0; 1 << 16];
    // The reader may be gone: the command continues.
    let mut write = |bytes: &[u8]| {
        let _unwritten = to.write_all(bytes).and_then(|()| to.flush());
    };
    loop {
        let size = match from.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(size) => size,
        };
        let (text, status) = stream.push(&bytes[..size]);
        write(&text);
        if let Some(status) = status {
            let _nobody = events.send(Event::Status(status));
            return;
        }
    }
    write(&stream.rest());
    let _nobody = events.send(Event::Lost);
}
