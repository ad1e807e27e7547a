#!/usr/bin/env python3
"""Makes testdata/goldens/adapters.{json,safetensors}: adapters as PEFT writes them, and what they do.

Usage: make_adapter_goldens.py OUTPUT_DIRECTORY   (needs torch, transformers, peft, safetensors, numpy)

adapters.json: the versions, per model its config.json, and per case its model and its
adapter_config.json. adapters.safetensors: "MODEL/weight/NAME" and "CASE/adapter/NAME" as
save_pretrained writes them, "tokens" int32 [1, tokens] and the logits "CASE/logits", computed in
float64 and stored as float32.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import peft
import safetensors.numpy
import torch
import transformers

COMMON = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "head_dim": 4,
          "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 13,
          "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
ONE = COMMON | {"num_hidden_layers": 1}
EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 6}
# Name → class, and the keys of its config.
MODELS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", COMMON | {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", COMMON),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config",
             {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16, "vocab_size": 13,
              "bos_token_id": 1, "eos_token_id": 2}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", COMMON | {"num_local_experts": 3}),
    "qwen3moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig",
                 COMMON | {"num_experts": 3, "num_experts_per_tok": 2,
                           "moe_intermediate_size": 6}),
    "gptoss": ("GptOssForCausalLM", "GptOssConfig",
               COMMON | {"num_local_experts": 3, "num_experts_per_tok": 2,
                         "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    "deepseek3": ("DeepseekV3ForCausalLM", "DeepseekV3Config",
                  COMMON | {"head_dim": 2, "num_key_value_heads": 2, "q_lora_rank": None, "kv_lora_rank": 6,
                            "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4,
                            "moe_intermediate_size": 6, "n_routed_experts": 4,
                            "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 2,
                            "topk_group": 1, "first_k_dense_replace": 1}),
    "qwen2moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig",
                 ONE | EXPERTS | {"shared_expert_intermediate_size": 5}),
    "qwen3next": ("Qwen3NextForCausalLM", "Qwen3NextConfig",
                  COMMON | EXPERTS | {"shared_expert_intermediate_size": 5,
                                      "layer_types": ["linear_attention", "full_attention"],
                                      "full_attention_interval": 2, "linear_num_key_heads": 1,
                                      "partial_rotary_factor": 0.5,
                                      "linear_num_value_heads": 2, "linear_key_head_dim": 2,
                                      "linear_value_head_dim": 3}),
    "granite": ("GraniteMoeSharedForCausalLM", "GraniteMoeSharedConfig",
                ONE | {"num_local_experts": 3, "num_experts_per_tok": 2,
                       "shared_intermediate_size": 5}),
    "lfm2moe": ("Lfm2MoeForCausalLM", "Lfm2MoeConfig",
                COMMON | EXPERTS | {"layer_types": ["conv", "full_attention"],
                                    "num_dense_layers": 1}),
    "phimoe": ("PhimoeForCausalLM", "PhimoeConfig",
               ONE | {"num_local_experts": 3, "num_experts_per_tok": 2, "attention_bias": True,
                      "lm_head_bias": True}),
    "gemma4": ("Gemma4ForCausalLM", "Gemma4TextConfig",
               COMMON | {"enable_moe_block": True, "num_experts": 3, "top_k_experts": 2,
                         "moe_intermediate_size": 6, "global_head_dim": 8,
                         "layer_types": ["sliding_attention", "full_attention"],
                         "sliding_window": 3, "hidden_size_per_layer_input": 0,
                         "num_kv_shared_layers": 0}),
    "nemotron": ("NemotronHForCausalLM", "NemotronHConfig",
                 COMMON | {"layers_block_type": ["mamba", "moe", "attention"],
                           "num_hidden_layers": 3, "n_routed_experts": 3,
                           "num_experts_per_tok": 2, "moe_intermediate_size": 6,
                           "moe_shared_expert_intermediate_size": 5, "mamba_num_heads": 2,
                           "mamba_head_dim": 4, "n_groups": 1, "ssm_state_size": 4, "chunk_size": 5,
                           "n_group": 1, "topk_group": 1, "time_step_min": 1e-12,
                           "time_step_floor": 1e-12}),
}
QV, BOTH = ["q_proj", "v_proj"], ["experts.gate_up_proj", "experts.down_proj"]
# Name → model, and the keys of the LoraConfig.
CASES = {
    "patterns": ("qwen2", {"target_modules": QV + ["down_proj"],
                           "rank_pattern": {"q_proj": 1, r"^model\.layers\.1\.mlp\.down_proj": 3},
                           "alpha_pattern": {r"layers\.0.*v_proj": 5}}),
    "rslora": ("qwen2", {"target_modules": r".*\.1\.self_attn\.(q|o)_proj", "use_rslora": True}),
    "biases": ("qwen2", {"target_modules": QV, "bias": "lora_only"}),
    "all-biases": ("qwen2", {"target_modules": "all-linear", "bias": "all"}),
    "saved": ("llama", {"target_modules": QV, "modules_to_save": ["lm_head", "norm"]}),
    "saved-embedding": ("llama", {"target_modules": QV, "modules_to_save": ["embed_tokens"]}),
    "embedding": ("llama", {"target_modules": QV + ["embed_tokens"],
                            "alpha_pattern": {"embed_tokens": 1}}),
    "head": ("llama", {"target_modules": QV + ["lm_head"]}),
    "dora": ("qwen2", {"target_modules": QV + ["up_proj"], "use_dora": True}),
    "dora-embedding": ("llama", {"target_modules": ["embed_tokens", "k_proj"], "use_dora": True}),
    "embedding-untied": ("qwen2", {"target_modules": ["embed_tokens", "o_proj"],
                                   "rank_pattern": {"embed_tokens": 3}}),
    "conv1d": ("gpt2", {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True,
                        "rank_pattern": {"mlp.c_proj": 1}}),
    "conv1d-dora": ("gpt2", {"target_modules": ["c_attn", "c_proj", "wte"], "fan_in_fan_out": True,
                             "use_dora": True}),
    "mixtral-experts": ("mixtral", {"target_modules": "all-linear"}),
    "qwen3moe-experts": ("qwen3moe", {
        "target_modules": QV, "use_rslora": True,
        "target_parameters": ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"]}),
    "qwen3moe-down": ("qwen3moe", {"target_modules": ["q_proj"], "rank_pattern": {"down_proj": 1},
                                   "target_parameters": ["layers.1.mlp.experts.down_proj"]}),
    "gptoss-experts": ("gptoss", {
        "target_modules": QV, "alpha_pattern": {"experts.down_proj": 1},
        "target_parameters": ["experts.down_proj", "experts.gate_up_proj", "router.weight"]}),
    "experts-saved": ("gptoss", {"target_modules": QV, "modules_to_save": ["experts"]}),
    "deepseek3-experts": ("deepseek3", {
        "target_modules": ["kv_b_proj"], "rank_pattern": {"experts.gate_up_proj": 1},
        "target_parameters": BOTH + ["shared_experts.up_proj.weight"]}),
    "qwen2moe-experts": ("qwen2moe", {"target_modules": ["gate_proj", "q_proj"],
                                      "target_parameters": BOTH + ["mlp.gate.weight"]}),
    "qwen3next-experts": ("qwen3next", {"target_modules": ["in_proj_qkvz", "q_proj"],
                                        "target_parameters": BOTH}),
    "granite-experts": ("granite", {
        "target_modules": ["input_linear", "output_linear"], "rank_pattern": {"input_linear": 3},
        "target_parameters": BOTH + ["router.weight"]}),
    "granite-dora": ("granite", {"target_modules": ["q_proj", "input_linear", "output_linear"],
                                 "use_dora": True}),
    "lfm2moe-experts": ("lfm2moe", {"target_modules": ["w1", "in_proj"],
                                    "target_parameters": BOTH + ["feed_forward.gate.weight"]}),
    "phimoe-experts": ("phimoe", {"target_modules": ["q_proj"],
                                  "rank_pattern": {"router.weight": 1},
                                  "target_parameters": BOTH + ["router.weight"]}),
    "gemma4-experts": ("gemma4", {"target_modules": ["up_proj", "router.proj"],
                                  "target_parameters": ["experts.gate_up_proj"]}),
    "nemotron-experts": ("nemotron", {"target_modules": ["q_proj", "shared_experts.down_proj"],
                                      "alpha_pattern": {"experts.up_proj": 1},
                                      "target_parameters": ["experts.up_proj", "experts.down_proj",
                                                            "mixer.gate.weight"]}),
}


def model_of(name):
    model, config, keys = MODELS[name]
    torch.manual_seed(1)
    config = getattr(transformers, config)(**keys)
    config._attn_implementation = config._experts_implementation = "eager"
    model = getattr(transformers, model)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def files_of(directory, file):
    return safetensors.numpy.load_file(pathlib.Path(directory) / file)


def main():
    directory = pathlib.Path(sys.argv[1])
    tokens = torch.randint(3, 13, (1, 9), generator=torch.Generator().manual_seed(3))
    configs, cases, arrays = {}, {}, {"tokens": tokens.int().numpy()}
    with tempfile.TemporaryDirectory() as place:
        for name in MODELS:
            model = model_of(name)
            model.save_pretrained(place, max_shard_size="1GB")
            configs[name] = json.loads((pathlib.Path(place) / "config.json").read_text())
            weights = files_of(place, "model.safetensors")
            arrays |= {f"{name}/weight/{key}": value for key, value in weights.items()}
    for name, (base, keys) in CASES.items():
        config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=3, **keys)
        model = peft.get_peft_model(model_of(base), config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter) * 0.3)
        with tempfile.TemporaryDirectory() as place:
            model.save_pretrained(place)
            text = (pathlib.Path(place) / "adapter_config.json").read_text()
            cases[name] = {"model": base, "config": json.loads(text)}
            adapter = files_of(place, "adapter_model.safetensors")
        arrays |= {f"{name}/adapter/{key}": value for key, value in adapter.items()}
        logits = model.double()(tokens).logits
        arrays[f"{name}/logits"] = logits.detach().numpy().astype(np.float32)
    made = {"command": "scripts/make_adapter_goldens.py testdata/goldens",
            "torch": torch.__version__, "transformers": transformers.__version__,
            "peft": peft.__version__}
    text = json.dumps({"made": made, "models": configs, "cases": cases}, indent=1, sort_keys=True)
    (directory / "adapters.json").write_text(text + "\n")
    safetensors.numpy.save_file(arrays, directory / "adapters.safetensors")


if __name__ == "__main__":
    main()
