// Connects the parts of the page.

import { ApiKey } from "./api_key.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { element } from "./elements.js";
import { ExpertsPanel } from "./experts_panel.js";
import { showModel } from "./model_line.js";
import { Panel } from "./panel.js";
import { Server } from "./server.js";
import { Settings } from "./settings.js";

const key = new ApiKey();
const server = new Server(key);
const settings = new Settings(key);
const composer = new Composer();
const chat = new Chat(server, settings, composer);
const panel = new Panel();
const experts = new ExpertsPanel(server, () => panel.isOpen);

async function begin() {
  await showModel(server, settings);
  experts.refresh();
}

composer.onSend = (text) => chat.send(text);
composer.onStop = () => chat.stop();
panel.onChange = () => experts.refresh();
key.onChange = begin;
element("new-chat").addEventListener("click", () => chat.clear());

chat.restore();
begin();
composer.focus();
