//! Files that people give for a model and that hold something else: what each is, and what to give instead.

/// A kind of file that holds no model that is read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// Follows "is": `a web page`.
    pub what: &'static str,
    /// What to do next.
    pub instead: &'static str,
}

impl Foreign {
    /// Whether it is what is left of a model's file: another download may hold the model.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        [EMPTY, ZEROS, TEXT, OTHER_TEXT, PAGE, POINTER, WIDE_TEXT].contains(self)
    }
}

/// First bytes of a file that are looked at.
pub const START: usize = 512;

const EMPTY: Foreign =
    Foreign { what: "empty", instead: "fetch it again: the download ended before its first byte" };
const ZEROS: Foreign = Foreign {
    what: "not written yet: it begins with zeros",
    instead: "fetch it again: the download ended early",
};
const TEXT: Foreign = Foreign {
    what: "a text file",
    instead: "open it: a refused download leaves its message there; then fetch the file again",
};
/// Text in a file that is not called as a model.
const OTHER_TEXT: Foreign = Foreign { what: "a text file", instead: MODEL };
const MODELFILE: Foreign = Foreign {
    what: "a Modelfile of Ollama",
    instead: "name what follows FROM in it: a model or the path of a .gguf file",
};
const PAGE: Foreign = Foreign {
    what: "a web page, not the model",
    instead: "fetch the file itself: the link led to a page, perhaps to log in; for Hugging Face: hf download OWNER/MODEL FILE",
};
const POINTER: Foreign = Foreign {
    what: "a Git LFS pointer, not the file itself",
    instead: "fetch the file in its repository: git lfs pull",
};
const WIDE_TEXT: Foreign = Foreign {
    what: "text in UTF-16",
    instead: "save it as UTF-8: iconv -f UTF-16 -t UTF-8 config.json > new.json",
};
const PICTURE: Foreign = Foreign { what: "a picture", instead: MODEL };
const DOCUMENT: Foreign = Foreign { what: "a PDF document", instead: MODEL };
const PROGRAM: Foreign = Foreign { what: "a program", instead: MODEL };
const ARCHIVE: Foreign = Foreign {
    what: "a compressed archive",
    instead: "unpack it, and give the model file or directory in it",
};
const PYTORCH: Foreign = Foreign {
    what: "a PyTorch file, which is not read",
    instead: "for a language model give the .safetensors file or its config.json; export a vision network to .onnx with torch.onnx.export",
};
const TENSORRT: Foreign = Foreign {
    what: "a TensorRT engine, which is not read",
    instead: "give what it was built from: the .onnx file, or the language model's config.json",
};
const KERAS: Foreign = Foreign {
    what: "an HDF5 file, as Keras writes, which is not read",
    instead: "convert it to .onnx with tf2onnx, and give that file",
};
const TFLITE: Foreign = Foreign {
    what: "a TensorFlow Lite file, which is not read",
    instead: "convert it to .onnx with tf2onnx, and give that file",
};
const GGML: Foreign = Foreign {
    what: "a GGML file, older than GGUF, which is not read",
    instead: "give a GGUF file of the model: llama.cpp's convert_llama_ggml_to_gguf.py makes one",
};
const WHISPER: Foreign = Foreign { what: "a speech recognition model for whisper.cpp", instead: UNREAD };
const PIPELINE: Foreign =
    Foreign { what: "the index of an image or video generator (diffusers)", instead: UNREAD };
const MLC: Foreign = Foreign {
    what: "a package of MLC LLM, whose weights are not read",
    instead: "give the config.json of the model that it was converted from, with --engine mlc and --format",
};
const GENAI: Foreign = Foreign {
    what: "a package of ONNX Runtime GenAI, whose weights are not read",
    instead: "give the config.json of the model that it was exported from, with --format",
};
pub(crate) const VOCABULARY: Foreign =
    Foreign { what: "a vocabulary without weights", instead: "give the .gguf file of the model itself" };
const CHECKPOINT: Foreign = Foreign {
    what: "a configuration of TensorRT-LLM's own",
    instead: "give the config.json of the model that it was converted from, with --engine tensorrt-llm and --format",
};
const MANIFEST: Foreign = Foreign {
    what: "a manifest of Ollama, not the model",
    instead: "give the largest file that it names, in the directory blobs next to manifests",
};
const PARAMETERS: Foreign = Foreign {
    what: "a configuration in the publisher's own format",
    instead: "give the config.json that transformers reads, which is published with it or under a name with -hf",
};
/// What a configuration without `model_type` is by fields that it has.
pub(crate) const BY_FIELDS: [(&[&str], &Foreign); 6] = [
    (&["producer", "architecture"], &CHECKPOINT),
    (&["schemaVersion", "layers"], &MANIFEST),
    (&["dim", "n_layers", "n_heads"], &PARAMETERS),
    (&["d_model", "n_layer", "ssm_cfg"], &PARAMETERS),
    (&["input_features", "output_features"], &POLICY),
    (&["istftnet"], &SPEAKER),
];
const POLICY: Foreign = Foreign {
    what: "a policy that moves a robot",
    instead: "rooflined predicts its language model alone: give the config.json of that model",
};
const SPEAKER: Foreign = Foreign { what: "a generator of speech or sound", instead: UNREAD };
const REQUESTS: Foreign = Foreign {
    what: "a file of requests, one on each line",
    instead: "give it with its option: rooflinectl predict --requests FILE.jsonl",
};
const ONNX: Foreign = Foreign {
    what: "an ONNX file",
    instead: "predict, recommend, compare, observe and models inspect take that file itself",
};
pub(crate) const PROJECTOR: Foreign = Foreign {
    what: "a projector of pictures or sound (mmproj) for another model",
    instead: "give the language model's .gguf file, which is next to it where both were published",
};
const TOKENIZER: Foreign = Foreign {
    what: "a file of the tokenizer or of settings, which does not describe the model",
    instead: "give config.json, which is published with it, or their directory",
};
/// A LoRA adapter, which is a part of a model.
pub(crate) const ADAPTER: Foreign = Foreign {
    what: "an adapter (LoRA) of another model",
    instead: "give the model that it was trained for, by its key or file; to predict both together, merge the adapter into it first",
};
/// What only drafts: it has no tables, or only some rows of them, and runs on the states of another model.
pub(crate) const DRAFTER: Foreign = Foreign {
    what: "a head (EAGLE, Medusa) that drafts for another model",
    instead: "give the model that it drafts for; to predict speculation, add --draft-tokens and the rate of acceptance",
};
/// Of networks that handle no text.
const EXPORT: &str =
    "export it to .onnx with torch.onnx.export, and give that file: rooflinectl predict network.onnx";
/// Of networks that are predicted in no form.
const UNREAD: &str =
    "rooflined predicts language models, encoders of text, and vision networks in .onnx files";
/// A part of a pipeline of diffusers, whose classes are too many to list.
pub(crate) const GENERATOR: Foreign =
    Foreign { what: "a part of an image or video generator", instead: UNREAD };
/// Beginnings of names of models whose weights nobody outside has.
const UNPUBLISHED: Foreign = Foreign {
    what: "a model whose weights are not published",
    instead: "it cannot be predicted; name an open model: rooflinectl models list shows all",
};

/// Networks that are no models of text: what they are, their families (`model_type` of a config.json, `general.architecture` of a
/// GGUF file), and beginnings of the names under which they are published, letters and digits alone.
const NETWORKS: [(Foreign, &str, &str); 14] = [
    (
        Foreign {
            what: "a text encoder, and none is known by name",
            instead: "save its config.json and give its path",
        },
        "",
        "bge allminilm minilm nomicembed e5 multilinguale5 gte mxbaiembed jinaembeddings snowflakearctic embeddinggemma \
         sentencetransformers",
    ),
    (
        Foreign { what: "a speech recognition model", instead: UNREAD },
        "whisper moonshine moonshine_streaming speech_to_text parakeet_ctc parakeet_rnnt parakeet_tdt wav2vec2-bert canary",
        "whisper moonshine parakeet",
    ),
    (Foreign { what: "a speech encoder", instead: EXPORT }, "wav2vec2 hubert wavlm", "wav2vec2 hubert wavlm"),
    (SPEAKER, "bark vits speecht5 musicgen musicgen_melody csm dia kokoro", "bark kokoro musicgen xtts"),
    (POLICY, "gr00t gr00t_n1_5 pi0 pi05 smolvla", "gr00t openvla pi0 smolvla"),
    (
        Foreign { what: "a forecaster of time series", instead: EXPORT },
        "autoformer informer patchtst patchtsmixer time_series_transformer timesfm timesfm2_5",
        "timesfm chronos",
    ),
    (Foreign { what: "an audio codec", instead: EXPORT }, "encodec dac mimi wavtokenizer-dec", "encodec"),
    (
        GENERATOR,
        "flux sd1 sd3 sdxl aura hidream cosmos hyvid wan ltxv lumina2 qwen_image pig",
        "stablediffusion sdxl sd3 flux wan2",
    ),
    (
        Foreign { what: "an image classifier", instead: EXPORT },
        "vit deit beit swin swinv2 convnext convnextv2 resnet regnet efficientnet mobilenet_v1 mobilenet_v2 mobilevit timm_wrapper",
        "vit deit beit swin convnext resnet resnext efficientnet mobilenet vgg inception densenet",
    ),
    (
        Foreign { what: "an object detector", instead: EXPORT },
        "detr deformable_detr conditional_detr rt_detr rt_detr_v2 d_fine yolos table-transformer owlvit owlv2 grounding-dino mm-grounding-dino",
        "yolo ssd detr rtdetr efficientdet fasterrcnn maskrcnn retinanet",
    ),
    (
        Foreign { what: "an image segmentation network", instead: EXPORT },
        "sam sam2 sam_hq segformer maskformer mask2former oneformer upernet",
        "unet segformer",
    ),
    (
        Foreign { what: "a depth estimator", instead: EXPORT },
        "dpt depth_anything depth_pro glpn zoedepth",
        "depthanything midas zoedepth",
    ),
    (
        Foreign { what: "an image encoder", instead: EXPORT },
        "dinov2 dinov3_vit vit_mae ijepa siglip_vision_model clip_vision_model clip siglip siglip2 chinese_clip clipseg",
        "dinov2 dinov3 clip siglip",
    ),
    (UNPUBLISHED, "", "gpt3 gpt4 gpt5 claude gemini"),
];

/// What a network is by its family; `None` where it may be a model of text.
#[must_use]
pub fn of_family(family: &str) -> Option<Foreign> {
    let is_of = |families: &str| families.split_whitespace().any(|known| known == family);
    NETWORKS.iter().find(|(_, families, _)| is_of(families)).map(|(kind, _, _)| *kind)
}

/// Words in names of classes, and the family of a network of that kind.
const CLASSES: [(&str, &str); 14] = [
    ("ImageClassification", "vit"),
    ("VideoClassification", "vit"),
    ("MaskedImageModeling", "dinov2"),
    ("VisionModel", "dinov2"),
    ("ObjectDetection", "detr"),
    ("Segmentation", "sam"),
    ("DepthEstimation", "dpt"),
    ("ForCTC", "whisper"),
    ("ForRNNT", "whisper"),
    ("SpeechSeq2Seq", "whisper"),
    ("AudioClassification", "hubert"),
    ("TextToSpeech", "csm"),
    ("TextToWaveform", "csm"),
    ("ForPrediction", "informer"),
];

/// What a network is by the class that its configuration names; `None` where it may be a model of text.
#[must_use]
pub fn of_class(class: &str) -> Option<Foreign> {
    CLASSES.iter().find(|(word, _)| class.contains(word)).and_then(|(_, family)| of_family(family))
}

/// What a part of a model is that stands alone, by the ending of its family.
#[must_use]
pub fn of_part(family: &str) -> Option<Foreign> {
    let ends = |endings: &[&str]| endings.iter().any(|ending| family.ends_with(ending));
    let sees = ends(&["_vision", "_vision_model"]).then_some("dinov2");
    sees.or_else(|| ends(&["_audio", "_audio_encoder"]).then_some("hubert")).and_then(of_family)
}

/// What a network is by the name under which it is published; `None` where it may be a model of text.
#[must_use]
pub fn of_published(name: &str) -> Option<Foreign> {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    let begins = |names: &str| names.split_whitespace().any(|known| name.starts_with(known));
    NETWORKS.iter().find(|(_, _, names)| begins(names)).map(|(kind, _, _)| *kind)
}

const MODEL: &str = "give a .gguf or .safetensors file, a config.json, or an .onnx file";

/// Kinds by the bytes that they start with.
const MAGIC: [(&[u8], &Foreign); 24] = [
    (b"version https://git-lfs", &POINTER),
    (b"<", &PAGE),
    (b"\xff\xfe", &WIDE_TEXT),
    (b"\xfe\xff", &WIDE_TEXT),
    (b"\x89PNG", &PICTURE),
    (b"\xff\xd8\xff", &PICTURE),
    (b"GIF8", &PICTURE),
    (b"%PDF", &DOCUMENT),
    (b"\x7fELF", &PROGRAM),
    (b"\x1f\x8b", &ARCHIVE),
    (b"BZh", &ARCHIVE),
    (b"\xfd7zXZ", &ARCHIVE),
    (b"7z\xbc\xaf", &ARCHIVE),
    (b"\x28\xb5\x2f\xfd", &ARCHIVE),
    (b"ftrt", &TENSORRT),
    (b"ptrt", &TENSORRT),
    (b"\x80\x02", &PYTORCH),
    (b"\x80\x03", &PYTORCH),
    (b"\x80\x04", &PYTORCH),
    (b"\x89HDF", &KERAS),
    (b"lmgg", &GGML),
    (b"fmgg", &GGML),
    (b"tjgg", &GGML),
    (b"PK\x03\x04", &ARCHIVE),
];

/// Kinds by the end of their names.
const ENDINGS: [(&[&str], &Foreign); 11] = [
    (&[".jsonl"], &REQUESTS),
    (&["model_index.json"], &PIPELINE),
    (&["mlc-chat-config.json"], &MLC),
    (&["genai_config.json"], &GENAI),
    (&[".pt", ".pth", ".bin", ".ckpt", ".pkl"], &PYTORCH),
    (&[".engine", ".plan", ".trt"], &TENSORRT),
    (&[".h5", ".keras"], &KERAS),
    (&[".tflite"], &TFLITE),
    (&[".zip", ".tar", ".gz", ".7z"], &ARCHIVE),
    (&[".onnx"], &ONNX),
    (
        &[
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
            "added_tokens.json",
            "vocab.json",
            "generation_config.json",
            "preprocessor_config.json",
        ],
        &TOKENIZER,
    ),
];

/// What a file is by its first bytes, at most [`START`] of them, and its name; `None` where neither tells.
#[must_use]
pub fn of(start: &[u8], name: &str) -> Option<&'static Foreign> {
    let named = of_name(name);
    let zipped = named.filter(|kind| **kind == PYTORCH && start.starts_with(b"PK"));
    let found = zipped.or_else(|| of_bytes(start)).or(named)?;
    // A refused download is called as the model that it was to be.
    let is_model = |end: &&str| name.to_ascii_lowercase().ends_with(end);
    let is_other = named.is_none() && ![".gguf", ".safetensors", ".json"].iter().any(is_model);
    Some(match *found {
        TEXT if is_other && start.starts_with(b"FROM ") => &MODELFILE,
        TEXT if is_other => &OTHER_TEXT,
        _ => found,
    })
}

/// What a file is by its first bytes alone.
#[must_use]
pub fn of_bytes(start: &[u8]) -> Option<&'static Foreign> {
    let after_space = start.trim_ascii_start();
    let magic = MAGIC.iter().find(|(magic, _)| start.starts_with(magic) || after_space.starts_with(magic));
    match magic {
        // The first number is the size of the vocabulary, which is that of Whisper alone.
        Some((_, kind)) if **kind == GGML && matches!(start.get(4..8), Some([0x98..=0x9a, 0xca, 0, 0])) => {
            Some(&WHISPER)
        }
        Some((_, kind)) => Some(kind),
        None if start.is_empty() => Some(&EMPTY),
        None if start.len() >= 8 && start.iter().all(|byte| *byte == 0) => Some(&ZEROS),
        None if start.get(4..8) == Some(b"TFL3") => Some(&TFLITE),
        None if start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => Some(&TEXT),
        None => None,
    }
}

/// What a file is by its name alone.
#[must_use]
pub fn of_name(name: &str) -> Option<&'static Foreign> {
    let name = name.to_ascii_lowercase();
    if name.ends_with(".gguf") && name.contains("mmproj") {
        return Some(&PROJECTOR);
    }
    ENDINGS.iter().find(|(endings, _)| endings.iter().any(|end| name.ends_with(end))).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_known_by_their_family_and_by_their_published_name() {
        for (family, expected) in [("whisper", "speech"), ("rt_detr", "detector"), ("flux", "generator")] {
            assert!(of_family(family).unwrap().what.contains(expected), "{family}");
        }
        for (class, expected) in
            [("PvtForImageClassification", "classifier"), ("OmniAsrForCTC", "recognition")]
        {
            assert!(of_class(class).unwrap().what.contains(expected), "{class}");
        }
        assert!(of_part("glm4v_vision").unwrap().what.contains("image encoder"));
        assert_eq!((of_class("LlamaForSequenceClassification"), of_part("granite_text")), (None, None));
        for (name, expected) in
            [("YOLOv8n", "detector"), ("whisper-large-v3", "speech"), ("gpt-4o", "not published")]
        {
            assert!(of_published(name).unwrap().what.contains(expected), "{name}");
        }
        for family in ["", "llama", "vita-Qwen2", "bitnet"] {
            assert_eq!(of_family(family), None, "{family}");
        }
        assert_eq!((of_published(""), of_published("llama-3.1-8b")), (None, None));
    }

    #[test]
    fn what_is_no_model_is_named_by_its_bytes_before_its_name() {
        for (start, name, expected) in [
            (&b"\x89PNG\r\n\x1a\n"[..], "x.gguf", "a picture"),
            (b"", "x.gguf", "empty"),
            (b"\0\0\0\0\0\0\0\0\0", "x.safetensors", "zeros"),
            (b"version https://git-lfs.github.com/spec/v1\n", "x.gguf", "Git LFS pointer"),
            (b"\n <!DOCTYPE html>", "x.gguf", "web page"),
            (b"{\"error\":\"Repository not found\"}", "x.gguf", "text file"),
            (b"PK\x03\x04archive", "pytorch_model.bin", "PyTorch"),
            (b"PK\x03\x04archive", "x.gguf", "archive"),
            (b"\x80\x02\x8a\nl", "x.pth", "PyTorch"),
            (b"ftrt\0\0\0\0", "x.engine", "TensorRT"),
            (b"\x01\x02\x03\xff", "x.plan", "TensorRT"),
            (b"\x1c\0\0\0TFL3", "x", "TensorFlow Lite"),
            (b"lmgg\x98\xca\0\0\xdc\x05", "ggml-base.en.bin", "whisper.cpp"),
            (b"lmgg\0\x7d\0\0", "ggml-model.bin", "GGML file"),
            (b"{}", "tokenizer.json", "text file"),
            (b"# Notes\n", "README.md", "text file"),
            (b"FROM qwen3:4b\n", "Modelfile", "Modelfile of Ollama"),
        ] {
            let found = of(start, name).map(|kind| kind.what);
            assert!(found.is_some_and(|what| what.contains(expected)), "{name}: {found:?}");
        }
        let next = |name: &str| of(b"hello", name).unwrap().instead;
        assert!(next("x.gguf").contains("fetch the file again") && next("run.py") == MODEL);
        assert_eq!(of(b"GGUF\x03\0\0\0", "model.gguf"), None);
        assert_eq!(of(b"\x08\x07\x12\x07pytorch", "model"), None);
    }
}
