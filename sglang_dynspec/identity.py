"""
What a server is, as far as the cost of its rounds depends on it.
"""

from pydantic import BaseModel, ConfigDict, Field


class Identity(BaseModel):
    """
    What a calibration was measured on. Empty text stands for unknown, which matches anything.

    Attributes:
        gpu: Name of the GPU, as its driver gives it.

        model: The target model, path or name.

        draft: The draft model, path or name; empty where the target brings its own.

        sglang: SGLang's version.

        attention_backend: SGLang's attention backend for decode.

        tensor_parallel: GPUs the target is spread over; 0 where it is not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    gpu: str = ""
    model: str = ""
    draft: str = ""
    sglang: str = ""
    attention_backend: str = ""
    tensor_parallel: int = Field(default=0, ge=0)
