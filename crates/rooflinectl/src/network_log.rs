//! What engines print of a timed network: the time of a run, and what they say of how it ran.
//!
//! trtexec ends with `GPU Compute Time: min = 4.3 ms, …, median = 4.4 ms, …` and says before `Precision: FP32+FP16` and
//! `Input inference shape: images=1x3x640x640`; onnxruntime_perf_test with `P50 Latency: 0.0099 s`, where it was asked for percentiles,
//! and with `Average inference time cost: 9.9 ms` always.

use std::io::Read;
use std::path::Path;

use super::failure::Failure;
use rooflined_api::NetworkEngine;
use rooflined_core::precision::Precision;

/// Most of a log that is read: the end of it matters.
const MAX_BYTES: u64 = 64 << 20;

/// A timed network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkLog {
    pub engine: NetworkEngine,
    /// Seconds of one run inside the engine: the median, or the mean where the log has no median.
    pub time_s: f64,
    /// `None` where the log does not tell.
    pub precision: Option<Precision>,
    pub threads: Option<u32>,
    /// Inputs with their sizes.
    pub shapes: Vec<(String, Vec<u64>)>,
    /// Name of the ONNX file.
    pub file: Option<String>,
}

/// Reads a log from a file, or from standard input for `-`.
///
/// # Errors
/// It cannot be read, or is not the whole log of one of the programs.
pub fn read(path: &Path) -> Result<NetworkLog, Failure> {
    let mut bytes = Vec::new();
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(MAX_BYTES).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        Failure::wrong_file(
            format!("{name} cannot be read: {error}"),
            "give the file that the program's output went to",
        )
    })?;
    parse(&String::from_utf8_lossy(&bytes))
        .map_err(|(what, hint)| Failure::wrong_file(format!("{name} {what}"), hint))
}

type Unread = (String, &'static str);

fn parse(text: &str) -> Result<NetworkLog, Unread> {
    if text.contains("TensorRT.trtexec") || text.contains("GPU Compute Time:") {
        return trtexec(text);
    }
    if text.contains("Average inference time cost") || text.contains("P50 Latency") {
        return perf_test(text);
    }
    Err((
        "holds no time of a network".to_owned(),
        "give the whole output of trtexec or onnxruntime_perf_test, or the time of one run: --time 12ms",
    ))
}

/// What follows the last occurrence of `key`, to the end of its line.
fn after<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let at = text.rfind(key)? + key.len();
    Some(text[at..].lines().next().unwrap_or_default().trim())
}

/// The number at the start of a text, with its unit behind it; only one that can be a time.
fn seconds(text: &str, unit: &str) -> Option<f64> {
    let text = text.trim_start_matches(['=', ':', ' ']);
    let end = text.find(|end: char| !(end.is_ascii_digit() || ".eE+-".contains(end))).unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    let factor = if unit == "ms" { 1e-3 } else { 1.0 };
    let is_whole = text[end..].trim_start().starts_with(unit);
    (is_whole && value.is_finite() && value > 0.0).then_some(value * factor)
}

fn trtexec(text: &str) -> Result<NetworkLog, Unread> {
    const CUT: &str = "let trtexec run to its end, and give all that it prints";
    if text.contains("&&&& FAILED") {
        return Err(("is the log of a trtexec that failed".to_owned(), "look for its first line with [E]"));
    }
    if after(text, "DLACore:").is_some_and(|core| core.starts_with(|digit: char| digit.is_ascii_digit())) {
        return Err((
            "is of a run on a DLA, whose times are not learned from".to_owned(),
            "run trtexec without --useDLACore",
        ));
    }
    let Some(summary) = after(text, "GPU Compute Time: min") else {
        return Err(("ends before trtexec says its GPU Compute Time".to_owned(), CUT));
    };
    // Older versions print a mean alone, and end the line after it.
    let time = |name: &str| seconds(after(summary, name)?, "ms");
    let time_s = time("median").or_else(|| time("mean").filter(|_| text.contains("&&&& PASSED")));
    let time_s = time_s.ok_or(("ends before trtexec says its median".to_owned(), CUT))?;
    // An engine that is loaded has the precision that it was built in, which the log does not tell.
    let precision = after(text, "] Precision:").filter(|_| !text.contains("--loadEngine"));
    let precision = precision.map(|names| match names {
        names if names.contains("INT8") => Precision::Int8,
        names if names.contains("FP16") => Precision::Fp16,
        _ => Precision::Tf32,
    });
    let shape = |line: &str| {
        let (_, shape) = line.split_once("Input inference shape")?;
        let (name, sizes) = shape.trim_start_matches([':', ' ']).trim().split_once('=')?;
        let sizes: Option<Vec<u64>> = sizes.split('x').map(|size| size.parse().ok()).collect();
        Some((name.trim().to_owned(), sizes?))
    };
    let file = after(text, "] Model:").filter(|file| !file.is_empty());
    Ok(NetworkLog {
        engine: NetworkEngine::TensorRt,
        time_s,
        precision,
        threads: None,
        shapes: text.lines().filter_map(shape).collect(),
        file: file.map(|file| file.rsplit(['/', '\\']).next().unwrap_or(file).to_owned()),
    })
}

fn perf_test(text: &str) -> Result<NetworkLog, Unread> {
    let mean = ["Average inference time cost total:", "Average inference time cost:"]
        .into_iter()
        .find_map(|key| seconds(after(text, key)?, "ms"));
    let time_s = after(text, "P50 Latency:").and_then(|text| seconds(text, "s")).or(mean);
    let time_s = time_s.ok_or((
        "has no latency that can be a time".to_owned(),
        "let onnxruntime_perf_test run to its end, and give all that it prints",
    ))?;
    let threads = after(text, "Setting intra_op_num_threads to").and_then(|count| count.parse().ok());
    Ok(NetworkLog {
        engine: NetworkEngine::OnnxRuntime,
        time_s,
        precision: None,
        threads: threads.filter(|threads| *threads > 0),
        shapes: Vec::new(),
        file: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRTEXEC: &str = "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=nets/finder.onnx --fp16\n\
        [11/20/2026-10:00:01] [I] Model: nets/finder.onnx\n\
        [11/20/2026-10:00:01] [I] Precision: FP32+FP16\n\
        [11/20/2026-10:00:01] [I] DLACore: \n\
        [11/20/2026-10:00:01] [I] Input inference shape : images=2x3x320x320\n\
        [11/20/2026-10:00:09] [I] Latency: min = 5.1 ms, max = 6.2 ms, mean = 5.4 ms, median = 5.3 ms\n\
        [11/20/2026-10:00:09] [I] GPU Compute Time: min = 4.5 ms, max = 5.5 ms, mean = 4.75 ms, median = 4.625 ms, percentile(99%) = 5 ms\n\
        [11/20/2026-10:00:09] [I] Total GPU Compute Time: 2.9 s\n&&&& PASSED TensorRT.trtexec\n";
    const PERF_TEST: &str = "Setting intra_op_num_threads to 2\nSession creation time cost: 0.03 s\n\
        Average inference time cost total: 12.5 ms\nNumber of inferences per second: 80\n\
        Min Latency: 0.011 s\nP50 Latency: 0.012 s\nP999 Latency: 0.02 s\n";

    #[test]
    fn a_log_of_trtexec_tells_time_precision_and_sizes() {
        let log = parse(TRTEXEC).unwrap();
        assert_eq!(log.engine, NetworkEngine::TensorRt);
        assert!((log.time_s - 4.625e-3).abs() < 1e-12, "the GPU's time, without copies");
        assert_eq!((log.precision, log.file.as_deref()), (Some(Precision::Fp16), Some("finder.onnx")));
        assert_eq!(log.shapes, [("images".to_owned(), vec![2, 3, 320, 320])]);
        let loaded = TRTEXEC.replace("--onnx=nets/finder.onnx", "--loadEngine=finder.engine");
        assert_eq!(parse(&loaded).unwrap().precision, None, "a loaded engine does not tell");
        let older = TRTEXEC.replace("median = 4.625 ms", "median 4.625 ms");
        assert_eq!(parse(&older).unwrap(), log);
    }

    #[test]
    fn a_log_of_perf_test_tells_the_median_or_the_mean() {
        let log = parse(PERF_TEST).unwrap();
        assert_eq!((log.engine, log.threads), (NetworkEngine::OnnxRuntime, Some(2)));
        assert!((log.time_s - 0.012).abs() < 1e-12);
        let mean = parse(&PERF_TEST.replace("P50 Latency: 0.012 s\n", "")).unwrap();
        assert!((mean.time_s - 0.0125).abs() < 1e-12);
    }

    #[test]
    fn logs_without_a_time_are_refused() {
        for (from, to) in [
            ("GPU Compute Time: min", "Enqueue"),
            ("median = 4.625 ms, percentile(99%) = 5 ms", ""),
            ("&&&& PASSED", "&&&& FAILED"),
            ("DLACore: ", "DLACore: 0"),
        ] {
            let cut = TRTEXEC.replace(from, to).replace("mean = 4.75 ms", "mean = nan ms");
            assert!(parse(&cut).is_err(), "{from}");
        }
        for time in ["0", "nan", "-1", "inf", "1e999"] {
            let text = format!("Average inference time cost: {time} ms\n");
            assert!(parse(&text).is_err(), "{time}");
        }
        assert!(parse("").is_err() && parse("Fri Nov 27\n").is_err());
    }

    #[test]
    fn half_a_log_is_read_as_the_whole_or_refused() {
        for whole in [TRTEXEC, PERF_TEST] {
            let of_whole = parse(whole).unwrap();
            for log in (0..whole.len()).filter_map(|end| parse(&whole[..end]).ok()) {
                assert!(
                    (log.time_s / of_whole.time_s - 1.0).abs() < 0.1,
                    "{} {}",
                    log.time_s,
                    of_whole.time_s
                );
            }
        }
    }
}
