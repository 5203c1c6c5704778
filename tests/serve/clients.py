"""Client libraries of these APIs by others; they are imported on use, which takes two seconds."""

from lazy_packages import OnUse

anthropic = OnUse("anthropic")
openai = OnUse("openai")
