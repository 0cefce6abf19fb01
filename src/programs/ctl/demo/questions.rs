//! What a scheduler would ask.

use crate::commands::{keys, workload};
use crate::failure::Failure;
use crate::output::Printer;
use crate::words;
use decide::optimize::Objective;
use roofline::precision::WeightFormat;
use roofline::workload::Op;
use wire::client::Client;
use wire::{
    BatchRange, Constraints, Freedom, PredictAnswer, PredictRequest, RecommendAnswer, RecommendRequest,
    Workload,
};

/// A layer of a model with eight billion weights: from 4096 to 14336.
const LAYER: Op = Op::Gemv { n: 14_336, k: 4096 };

/// Asks three questions; the targets follow from what this machine can do, so that every machine has an answer.
pub async fn ask_three(printer: &Printer, client: &mut Client) -> Result<(), Failure> {
    let fp16 = time_of(client, WeightFormat::Fp16).await?;
    let int8 = time_of(client, WeightFormat::Int8).await?;
    let target = round(fp16 * 0.9);
    let question = RecommendRequest {
        constraints: Constraints { max_time_s: Some(target), ..Constraints::default() },
        ..about(&[])
    };
    let words =
        format!("One token must pass a layer of 14336x4096 within {}. Which format?", words::time(target));
    ask(printer, client, &words, &question).await?;

    let target = round(int8 * 4.0);
    let question = RecommendRequest {
        objective: Objective::Throughput,
        constraints: Constraints { max_time_s: Some(target), ..Constraints::default() },
        freedom: Freedom {
            batch: Some(BatchRange { min: 1, max: 64 }),
            formats: keys(&[WeightFormat::Int8, WeightFormat::Int4]),
            ..Freedom::default()
        },
        ..about(&[])
    };
    let words = format!(
        "How many requests can be batched through it, in int8 or int4, if each step may take {}?",
        words::time(target)
    );
    ask(printer, client, &words, &question).await?;

    let target = round(fp16 * 0.2);
    let question = RecommendRequest {
        constraints: Constraints { max_time_s: Some(target), ..Constraints::default() },
        ..about(&[WeightFormat::Fp16, WeightFormat::Bf16])
    };
    let words = format!("Can it keep 16 bits and take no more than {}?", words::time(target));
    ask(printer, client, &words, &question).await
}

fn about(formats: &[WeightFormat]) -> RecommendRequest {
    RecommendRequest {
        workload: Workload { op: Some(LAYER), ..Workload::default() },
        freedom: Freedom { formats: keys(formats), ..Freedom::default() },
        ..RecommendRequest::default()
    }
}

async fn time_of(client: &mut Client, format: WeightFormat) -> Result<f64, Failure> {
    let request = PredictRequest { workload: workload(LAYER, format, None), ..PredictRequest::default() };
    let answer: PredictAnswer = client.post("/v1/predict", &request).await?.parse()?;
    Ok(answer.time_s.value)
}

async fn ask(
    printer: &Printer,
    client: &mut Client,
    words: &str,
    question: &RecommendRequest,
) -> Result<(), Failure> {
    let request = serde_json::to_string(question).unwrap_or_default();
    printer.line(&format!("  {words}"))?;
    printer.line(&format!("  POST /v1/recommend {request}"))?;
    let answer: RecommendAnswer = client.post("/v1/recommend", question).await?.parse()?;
    let outcome = if answer.feasible { "" } else { "not feasible: " };
    printer.line(&format!("  -> {outcome}{}\n", answer.reason))
}

/// Two significant digits: a target that a person would name.
fn round(seconds: f64) -> f64 {
    let scale = 10_f64.powf(1.0 - seconds.log10().floor());
    (seconds * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_two_digits() {
        assert!((round(1.2345e-3) - 1.2e-3).abs() < 1e-12);
        assert!((round(987.6e-6) - 990e-6).abs() < 1e-12);
    }
}
