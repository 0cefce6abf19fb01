use std::io::Cursor;

use rooflined_advice::network_inspect;
use rooflined_models::network::{self, Dimensions};

pub fn run(input: &[u8]) {
    let values = ["n", "batch", "x.0"].map(|name| (name.to_owned(), 2)).into();
    let sized = Dimensions { size: Some((32, 48)), ..Dimensions::default() };
    for dimensions in [Dimensions::default(), Dimensions { values, size: None }, sized] {
        let read = network::read(Cursor::new(input), input.len() as u64, "fuzzed", &dimensions);
        let network = match read {
            Ok(network) => network,
            Err(error) => {
                assert!(!error.to_string().is_empty() && !error.hint().is_empty());
                continue;
            }
        };
        for (place, node) in network.nodes.iter().enumerate() {
            for id in node.reads() {
                let tensor = &network[id];
                assert!(
                    tensor.producer.is_none_or(|before| before.0 < place),
                    "{} runs too early",
                    node.name
                );
                assert!(tensor.consumers.contains(&network::NodeId(place)));
            }
            assert!(node.weight_bytes == 0 || node.weight_elements > 0);
        }
        let answer = network_inspect::of_file(&network, "fuzzed".to_owned());
        assert_eq!(answer.nodes.len(), network.nodes.len());
    }
}
