//! NVRTC behind a safe interface: CUDA C in, PTX text or the compiler's log out. It needs no GPU.

use std::ffi::{CStr, CString, c_char};

use cudarc::nvrtc::{result, sys};

/// Compiles. The inner error is the compiler's log; the outer one a sentence about the library.
pub fn compile(
    source: &str,
    options: &[String],
) -> std::result::Result<std::result::Result<String, String>, String> {
    if !present() {
        return Err(
            "libnvrtc does not load; install the CUDA toolkit's NVRTC, or name its folder in \
             LD_LIBRARY_PATH"
                .to_owned(),
        );
    }
    let Ok(source) = CString::new(source) else {
        return Ok(Err("the text holds a zero byte".to_owned()));
    };
    let program = Program(
        result::create_program(&source, Some(c"baseline.cu"))
            .map_err(|e| format!("NVRTC: {e:?}"))?,
    );
    // SAFETY: a live program.
    let compiled = unsafe { result::compile_program(program.0, options) };
    if let Err(error) = compiled {
        // SAFETY: a live program.
        let log = unsafe { result::get_program_log(program.0) };
        let log = log.map_or_else(|e| format!("no log ({e:?})"), |log| text(&log));
        return Ok(Err(format!("{error:?}\n{}", log.trim())));
    }
    // SAFETY: a live program that was compiled.
    let ptx = unsafe { result::get_ptx(program.0) };
    Ok(ptx
        .map(|ptx| text(&ptx))
        .map_err(|e| format!("no PTX came out: {e:?}")))
}

/// Whether the library loads here. It opens nothing.
fn present() -> bool {
    // SAFETY: it only tries to load the library.
    unsafe { sys::is_culib_present() }
}

struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; a failure leaks memory.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// Up to the zero that ends it.
fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiles_where_the_library_is_and_says_so_where_it_is_not() {
        let kernel = r#"extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1.0f; }"#;
        let options = ["--gpu-architecture=compute_90".to_owned()];
        match compile(kernel, &options) {
            Err(message) => {
                assert!(!present());
                assert!(message.contains("LD_LIBRARY_PATH"), "{message}");
            }
            Ok(compiled) => {
                let ptx = compiled.expect("it compiles");
                assert!(ptx.contains(".entry k("), "{ptx}");
                let wrong = compile("__global__ void k() { nothing; }", &options);
                let log = wrong.expect("the library is here").expect_err("an error");
                assert!(log.contains("baseline.cu(1)"), "{log}");
            }
        }
    }
}
