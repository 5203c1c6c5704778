"""The paths of all APIs that clients bring along."""

from starlette.routing import Route

from sharpi.serve import anthropic_routes, openai_routes
from sharpi.serve.chat_model import ChatModels
from sharpi.serve.model_host import ModelHost


def routes(host: ModelHost) -> list[Route]:
    """Those of one host."""
    chats = ChatModels(host)
    return [*openai_routes.routes(host, chats), *anthropic_routes.routes(host, chats)]
