"""A person's side: train as in any Flower app; the mod sends the update through coatcheck."""

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from coatcheck.protocol.client import Limit
from coatcheck.services.flower import Participant, attach
from taught import lesson
from taught.services import home, known_keys


def participant(context: Context) -> Participant:
    """Return what this person accepts; keys and limit belong to the person, not to the round."""
    settings = context.run_config
    folder = home(context)
    return Participant(
        trusted=known_keys(folder),
        limit=Limit(epsilon=float(settings["epsilon"]), delta=1e-3),
        clip=float(settings["clip"]),
        folder=folder / "people",
    )


app = ClientApp()
private = attach(app, participant)


@app.train(mods=[private])
def train(message: Message, context: Context) -> Message:
    """Take one step of gradient descent on this person's images."""
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    number = int(context.node_config["partition-id"])
    inputs, labels = lesson.of_person(number, str(context.run_config["data"]))
    model = model - lesson.gradient(model, inputs, labels)
    return Message(RecordDict({"arrays": ArrayRecord([model])}), reply_to=message)
