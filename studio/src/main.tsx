import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { adoptPageKey } from './api/page-key';
import { App } from './app';
import './styles.css';
import './theme';

adoptPageKey();

const root = document.getElementById('root');
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
