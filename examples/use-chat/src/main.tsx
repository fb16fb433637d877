import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ChatPage } from "./chat";

// ?collection=handbook selects a collection; without it the default one is queried.
const collection = new URLSearchParams(location.search).get("collection") ?? undefined;

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <ChatPage collection={collection} />
  </StrictMode>,
);
