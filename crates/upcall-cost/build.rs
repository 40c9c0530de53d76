//! Compiles the programs that run in the kernel, by clang.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/bpf/upcalls.bpf.c";

fn main() -> Result<(), String> {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let variable = |name: &str| env::var(name).map_err(|e| format!("{name}: {e}"));
    let arch = match variable("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => return Err(format!("no tracer for {other}: only x86_64 and aarch64")),
    };
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_string());
    let object = PathBuf::from(variable("OUT_DIR")?).join("upcalls.bpf.o");
    let mut compile = Command::new(&clang);
    compile.args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-c", SOURCE, "-o"]).arg(&object);
    // Line information names no folder of the builder, so that two builds are equal.
    compile.arg("-fdebug-compilation-dir=/usr/src/sluice");
    compile.arg(format!("-ffile-prefix-map={}=/usr/include", variable("DEP_BPF_INCLUDE")?));
    // Headers of libbpf-sys; those of the C library in Debian's directory for each architecture.
    compile.arg(format!("-D__TARGET_ARCH_{arch}")).arg(format!("-I{}", variable("DEP_BPF_INCLUDE")?));
    for triple in ["x86_64-linux-gnu", "aarch64-linux-gnu"] {
        compile.arg("-idirafter").arg(format!("/usr/include/{triple}"));
    }
    match compile.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{clang} could not compile {SOURCE} ({status})")),
        Err(e) => Err(format!(
            "{clang}: {e}; install clang (scripts/setup.sh check), or name it by the variable CLANG"
        )),
    }
}
